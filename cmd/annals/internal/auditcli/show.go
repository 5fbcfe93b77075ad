package auditcli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/projections/reads/shown"
	"github.com/annals-project/annals/projections/why"
)

// ShowCmd is "annals audit show".
type ShowCmd struct {
	Flags
	Request uuid.UUID `arg:"" help:"Id of the request, as X-Request-Id has it."`
	Part    int       `name:"part" help:"Part of a long record, from 0."`
	From    int       `name:"from" help:"First text to show, from 0."`
}

// Run shows what the request was shown.
func (c *ShowCmd) Run(ctx context.Context, to io.Writer) error {
	in := operatorapi.ShowReadRequest{Request: c.Request, Part: c.Part, From: c.From}
	found, err := operatorapi.ShowRead.Call(ctx, c.server(), in)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(to, found)
	}
	_, err = io.WriteString(to, wordsOf(found))
	return err
}

// wordsOf describes what a request was shown.
func wordsOf(s shown.Shown) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(&b, "%-9s %s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("request", "%s, part %d, at %s", s.ID, s.Part, s.At.Format(time.RFC3339Nano))
	line("project", "%s of organization %s", s.Project, s.OrganizationID)
	line("who", "%s", strings.TrimSpace(s.Principal+" "+clean(s.Name)))
	switch {
	case s.Identity != "":
		line("as", "%s", clean(s.Identity))
	case s.HasIdentity():
		line("as", "%s, which was erased", s.IdentityID)
	}
	line("way", "%s", s.Way)
	checked := "it is in the tree of its batch"
	if !s.Rooted {
		checked = "DIFFERS: the tree of its batch has another root"
	}
	line("record", "event %d of %s: %s", s.Revision, s.Stream, checked)
	for _, t := range s.Shown {
		_, _ = fmt.Fprintf(&b, "\n%s", shownName(t))
		if t.Reading != nil {
			_, _ = fmt.Fprintf(&b, "; then %s", readingOf(*t.Reading))
		}
		b.WriteString("\n")
		for _, text := range append([]string{t.Text}, t.Parts...) {
			if text != "" {
				_, _ = fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(clean(text), "\n", "\n  "))
			}
		}
		if t.Cut {
			b.WriteString("  (only the beginning)\n")
		}
	}
	if next := s.Next(); next > 0 {
		_, _ = fmt.Fprintf(&b, "\n%d of %d texts; go on with --from %d\n", next, s.Texts, next)
	}
	return b.String()
}

// shownName names a text, with whether it is as it was.
func shownName(t shown.Text) string {
	name := t.DataPoint.String()
	if t.SourceID != "" {
		name = clean(t.SourceID)
	}
	if t.Revision > 0 {
		name += fmt.Sprintf(", revision %d", t.Revision)
	}
	if t.Kind == why.KindMemory {
		name += ", a memory"
	}
	is := map[why.Kept]string{
		why.KeptAsStored: "as it was stored", why.KeptDiffers: "DIFFERS from what was stored", why.KeptErased: "erased",
		why.KeptUnproved: "not proved: the record names no event", why.KeptUnknown: "no text that the log has",
	}[t.Kept]
	if t.Deleted != nil {
		is += " on " + t.Deleted.At.Format(time.RFC3339)
		if t.Deleted.Request != nil {
			is += " by request " + t.Deleted.Request.String()
		}
	}
	return name + ": " + is
}

// readingOf describes whether the identity could read a text.
func readingOf(r why.Reading) string {
	switch {
	case r.ErasedAt != nil || r.Reason == why.ReasonNotLooked:
		return fmt.Sprintf("nobody knows any more whether it could be read (%s)", r.Reason)
	case !r.MayRead:
		return fmt.Sprintf("it could NOT be read (%s)", r.Reason)
	}
	text := string(r.Reason)
	if r.Judgement != nil && r.Judgement.Audience != nil {
		text += ", audience " + clean(r.Judgement.Audience.Slug)
	}
	return fmt.Sprintf("it could be read (%s)", text)
}

// clean is a text without what changes a terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
