package mcp

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/datapoints"
)

// metadataSchema has one type, since some clients drop a tool with a property that has none.
var metadataSchema = object{"type": "object"}

// recallTool returns the tool that recalls.
func recallTool() tool {
	return tool{
		name: "recall", title: "Recall", scope: auth.Read, route: "POST " + prefix + "/recall",
		description: "Find what is remembered, best first, each with its date, who said it and its source id. Call it " +
			"before you answer a question about people, decisions, facts, plans or events of the past.",
		args: []argument{
			{name: "query", required: true, text: "One question in the words of the user, not keywords. * lists the newest."},
			{name: identityArgument, identity: true, text: "Who asks."},
			{name: "limit", otherwise: 8, text: "The most results."},
			{name: "level", text: "How much evidence to gather: low, medium, high or extra-high."},
			{name: "maxTokens", text: "The most tokens of evidence, in place of level."},
			{name: "queryTimestamp", text: "When the question is asked, such as 2026-11-28T09:00:00Z. Left out: now."},
			{name: "occurredFrom", text: "Only what happened from then on, such as 2026-11-01."},
			{name: "occurredTo", text: "Only what happened until then, such as 2026-11-28."},
			{name: "sort", text: "relevance (best first) or chronological (oldest first)."},
		},
		act: actRecall, write: (*writer).recall,
		more: "recall with a narrower query or a smaller limit, or read with a source id",
	}
}

// rememberTool returns the tool that remembers.
func rememberTool() tool {
	return tool{
		name: rememberName, title: "Remember", scope: auth.Write, route: "POST " + prefix + "/ingest",
		description: "Store one fact, message or decision that will matter later. recall finds it a moment later.",
		changes:     true, repeatable: true,
		args: []argument{
			{name: "content", required: true, text: "The text as it was said or written, up to 1 MiB."},
			{name: "id", text: "A short name for the text, such as note-1: the same id later replaces it. Left out: one is made."},
			{name: "label", text: "A title or a heading."},
			{name: "timestamp", text: "When it was said or happened, such as 2026-11-28T09:00:00Z. Left out: now."},
			{name: "metadata", text: "Details as names and values.", schema: metadataSchema},
			{name: audienceArgument},
			{name: identityArgument, identity: true, text: "Who said or wrote it."},
			{name: "idempotencyKey", operator: true, text: "A repeat with the same key changes nothing."},
		},
		act: actRemember, write: (*writer).remembered,
	}
}

// readTool returns the tool that reads a text from an offset on.
func readTool() tool {
	return tool{
		name: "read", title: "Read", scope: auth.Read,
		description: "Read a whole text by its source id, which recall shows in brackets. A long text comes in parts: go " +
			"on with offset.",
		args: []argument{
			{name: "sourceId", required: true, text: "The id in brackets, such as note-1.", schema: object{"type": "string"}},
			{
				name: "offset", text: "The character to go on from. Left out: the beginning.",
				schema: object{"type": "integer", "minimum": 0, "default": 0},
			},
			{name: identityArgument, identity: true, text: "Who reads.", schema: object{"type": "string"}},
		},
		shape: object{
			"type": "object", "required": []string{"sourceId", "occurredAt", "characters", "offset", "content"},
			"properties": object{
				"sourceId": object{"type": "string"}, "occurredAt": object{"type": "string"}, "author": object{"type": "string"},
				"label": object{"type": "string"}, "characters": object{"type": "integer"}, "offset": object{"type": "integer"},
				"next": object{"type": "integer"}, "content": object{"type": "string"},
			},
		},
		act: actRead, write: (*writer).readText,
	}
}

// forgetTool returns the tool that deletes texts.
func forgetTool() tool {
	return tool{
		name: "forget", title: "Forget", scope: auth.Write,
		description: "Delete a text for good, with all that was derived from it. Ask the user first. Name the source id " +
			"that recall shows, or the ingestionId that remember returned.",
		changes: true, destructive: true, repeatable: true,
		args: []argument{
			{name: "sourceId", text: "The id in brackets, such as note-1.", schema: object{"type": "string"}},
			{
				name: "ingestionId", text: "What remember returned, to undo that call: a UUID.",
				schema: object{"type": "string", "format": "uuid"},
			},
		},
		shape: object{
			"type": "object", "required": []string{"deleted", "kept", "gone"}, "properties": object{
				"deleted": object{"type": "array", "items": object{"type": "string"}},
				"kept":    object{"type": "array", "items": object{"type": "string"}},
				"gone":    object{"type": "integer"},
			},
		},
		act: actForget, write: (*writer).forgotten,
	}
}

// progressTool returns the tool that polls what was remembered.
func progressTool() tool {
	return tool{
		name: "get_ingestion", title: "Is it remembered?", scope: auth.Read, route: "GET " + ingestion,
		description: "Whether recall finds a text that you remembered: processing, completed or failed. Call it only if " +
			"recall does not find the text after some seconds.",
		args: []argument{{name: "ingestionId", text: "What remember returned: a UUID."}},
		shape: object{
			"type": "object", "required": []string{"ingestionId", "status"}, "properties": object{
				"ingestionId": object{"type": "string"}, "status": object{"type": "string"},
				"failure": object{"type": "object", "properties": object{
					"code": object{"type": "string"}, "message": object{"type": "string"},
				}},
			},
		},
		act: actProgress, write: (*writer).progress,
	}
}

// maxTries is how many ids of one text are tried before one that nothing can have.
const maxTries = 8

// actRemember sends a text. Without an id it gets a short one, which is keyed by the identity and the text: a repeat
// changes nothing, and nobody learns by it what another wrote. An id that is taken or was deleted is passed over.
func actRemember(ctx context.Context, u *use) (answer object, o omitted, err error) {
	with, err := u.sendsTo()
	if err != nil {
		return nil, o, err
	}
	if err := u.checkAudience(ctx); err != nil {
		return nil, o, err
	}
	if _, named := u.args["id"]; named {
		if answer, o, err = u.ask(ctx, with); err == nil {
			u.readers, err = u.readersOf(ctx)
		}
		return answer, o, err
	}
	with.Own = &u.identity
	content, err := u.args.string("content")
	if err != nil {
		return nil, o, err
	}
	for try := range maxTries + 1 {
		u.args["id"], _ = json.Marshal(u.shortID(content, try)) // a text
		answer, o, err = u.ask(ctx, with)
		if f, is := errors.AsType[*fault.Error](err); !is || f.Code != ingest.CodeIDTaken {
			break
		}
	}
	if err == nil {
		u.readers, err = u.readersOf(ctx)
	}
	return answer, o, err
}

// onlyMe is the audience that a model names for the identity alone. The API has no such word.
const onlyMe = "me"

// sendsTo is how the call of a send finds its audience. A slug that the call names stays in the arguments.
func (u *use) sendsTo() (with httpx.InnerCall, err error) {
	with = httpx.InnerCall{Own: u.own(), KeepAudience: true, Placed: func(to uuid.UUID) { u.placed = &to }}
	if u.path != auth.MCPPath {
		return with, nil
	}
	slug, err := u.args.string(audienceArgument)
	if err != nil {
		return with, err
	}
	if with.Private = slug == onlyMe; with.Private {
		if u.identity == "" {
			return with, fault.New(fault.Invalid, fault.CodeIdentityRequired, "audience me is for an identity")
		}
		delete(u.args, audienceArgument)
	}
	with.PrivateIfNew = !u.caller.isKey()
	return with, nil
}

// readersOf names who can read a text that was sent.
func (u *use) readersOf(ctx context.Context) (string, error) {
	switch {
	case u.placed == nil:
		return "Readers: as before.", nil
	case *u.placed == uuid.Nil:
		return "Readers: everybody in the project.", nil
	}
	slug, private, err := u.Readers(ctx, u.p.Project, *u.placed)
	if err != nil {
		return "", err
	}
	named, err := u.args.string(audienceArgument)
	takes := u.path == auth.MCPOperatorPath || u.caller.bound == ""
	switch {
	case err != nil:
		return "", err
	case private != "" && private == u.identity && (u.caller.bound != "" || private == u.caller.person.Email):
		return "Readers: you alone; members with Read see it in the console.", nil
	case private != "" && (takes || private == u.identity):
		return "Readers: " + shownID(private) + " alone; members with Read see it in the console.", nil
	case slug != "" && (takes || slug == named):
		return "Readers: the audience " + shownID(slug) + ".", nil
	default:
		return "Readers: as before.", nil
	}
}

// shortID is the id of a text that has none: 12 characters.
func (u *use) shortID(content string, try int) string {
	if try == maxTries {
		content = uuid.NewString()
	}
	mac := hmac.New(sha256.New, u.HashKey)
	for _, part := range []string{"id of a text", u.p.Project.ID.String(), u.identity, content} {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	fmt.Fprintf(mac, "%d", try)
	const length = 12
	return strings.ToLower(base32.StdEncoding.EncodeToString(mac.Sum(nil))[:length])
}

// checkAudience refuses an audience that a bound identity does not belong to, as one that is unknown.
func (u *use) checkAudience(ctx context.Context) error {
	slug, err := u.args.string(audienceArgument)
	if err != nil || slug == "" || slug == audience.Default || u.caller.bound == "" {
		return err
	}
	in, err := u.Reaches(ctx, u.p.Project, u.caller.bound, slug)
	if err == nil && !in {
		err = fault.New(fault.Invalid, fault.CodeAudienceUnknown, "the project has no audience %q", slug)
	}
	return err
}

// sent reads the id of a send. A bound identity may name those alone that it wrote; any other is unknown.
func (u *use) sent(ctx context.Context) (id uuid.UUID, brought []datapoints.Brought, err error) {
	text, err := u.args.string("ingestionId")
	if err != nil {
		return id, nil, err
	}
	if !isUUID(text) {
		return id, nil, notUUID("ingestionId")
	}
	id = uuid.MustParse(text)
	brought, found, err := u.DataPoints.Brought(ctx, u.p.Project, id)
	if err != nil {
		return id, nil, err
	}
	other := func(b datapoints.Brought) bool {
		return b.SourceID == "" || b.Author != u.caller.bound || b.SentBy != u.caller.bound
	}
	if !found || u.caller.bound != "" && (len(brought) == 0 || slices.ContainsFunc(brought, other)) {
		return id, nil, fault.New(fault.NotFound, fault.CodeNotFound, "nothing was remembered under this ingestionId")
	}
	return id, brought, nil
}

// actProgress polls a send.
func actProgress(ctx context.Context, u *use) (object, omitted, error) {
	id, _, err := u.sent(ctx)
	if err != nil {
		return nil, omitted{}, err
	}
	status, o, err := u.ask(ctx, httpx.InnerCall{})
	if err != nil {
		return nil, o, err
	}
	answer := object{"ingestionId": id.String(), "status": status["status"]}
	if failure, ok := status["failure"].(object); ok {
		answer["failure"] = failure
	}
	return answer, o, nil
}

// actForget deletes a text by its source id, or what a send brought.
func actForget(ctx context.Context, u *use) (object, omitted, error) {
	source, err := u.args.string("sourceId")
	_, bySource := u.args["sourceId"]
	_, bySend := u.args["ingestionId"]
	switch {
	case err != nil:
		return nil, omitted{}, err
	case bySource == bySend:
		return nil, omitted{}, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"forget needs one of sourceId and ingestionId")
	case bySend:
		return u.forgetSend(ctx)
	}
	const route = prefix + "/data-points/"
	_, o, err := u.do(ctx, u.p, httpx.InnerCall{
		Method: http.MethodDelete, Path: route + url.PathEscape(source), Route: route + ":sourceId", Tool: u.tool.name,
		Own: u.own(),
	})
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeDataPointNotFound {
		err = fault.New(f.Kind, f.Code, "nothing was deleted: there is no text with this source id")
	}
	return object{"deleted": []any{source}, "kept": []any{}, "gone": 0}, o, err
}

// forgetSend deletes the texts whose newest revision a send brought. The others are kept, and named.
func (u *use) forgetSend(ctx context.Context) (object, omitted, error) {
	id, before, err := u.sent(ctx)
	if err != nil {
		return nil, omitted{}, err
	}
	_, o, err := u.do(ctx, u.p, httpx.InnerCall{
		Method: http.MethodDelete, Path: prefix + "/ingest/" + id.String(), Route: prefix + "/ingest/:ingestionId",
		Tool: u.tool.name,
	})
	if err != nil {
		return nil, o, err
	}
	after, _, err := u.DataPoints.Brought(ctx, u.p.Project, id)
	if err != nil {
		return nil, o, err
	}
	deleted, kept, gone := []any{}, []any{}, 0
	for _, b := range before {
		switch {
		case b.SourceID == "":
			gone++
		case slices.ContainsFunc(after, func(a datapoints.Brought) bool { return a.SourceID == b.SourceID }):
			kept = append(kept, b.SourceID)
		default:
			deleted = append(deleted, b.SourceID)
		}
	}
	return object{"deleted": deleted, "kept": kept, "gone": gone}, o, nil
}
