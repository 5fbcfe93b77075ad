package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
)

// audiences are those that the service of a test knows, by their ids: a slug, or an identity.
var audiences = map[uuid.UUID][2]string{
	uuid.MustParse("00000000-0000-4000-8000-000000000001"): {"leads", ""},
	uuid.MustParse("00000000-0000-4000-8000-000000000002"): {"", "ana"},
	uuid.MustParse("00000000-0000-4000-8000-000000000003"): {"", "ben"},
}

// How a text that is remembered finds its audience, and who is named as its readers.
func TestRemember_Audience(t *testing.T) {
	team, ofAna, ofBen := uuid.UUID{}, uuid.UUID{}, uuid.UUID{}
	for id, names := range audiences {
		switch names {
		case [2]string{"leads", ""}:
			team = id
		case [2]string{"", "ana"}:
			ofAna = id
		default:
			ofBen = id
		}
	}
	var sent httpx.InnerCall
	placed := &uuid.UUID{}
	f := newFixed(t, func(c echo.Context) error {
		if sent = httpx.InnerOf(c); placed != nil {
			sent.Placed(*placed)
		}
		return c.JSON(http.StatusOK, object{"sourceId": "n", "status": "queued"})
	})
	f.Readers = func(_ context.Context, _ auth.Project, of uuid.UUID) (slug, identity string, err error) {
		names := audiences[of]
		return names[0], names[1], nil
	}
	f.Reaches = func(_ context.Context, _ auth.Project, _, slug string) (bool, error) { return slug == "leads", nil }
	alone := "Readers: you alone; members with Read see it in the console."
	for name, c := range map[string]struct {
		path, bound, audience string
		placed                *uuid.UUID
		private               bool
		body, says            string
	}{
		"bound, for me":       {auth.MCPPath, "ana", "me", &ofAna, true, "", alone},
		"bound":               {auth.MCPPath, "ana", "", &uuid.Nil, false, "", "Readers: everybody in the project."},
		"bound, for the team": {auth.MCPPath, "ana", "leads", &team, false, `"audience":"leads"`, "Readers: the audience leads."},
		"kept for the team":   {auth.MCPPath, "ana", "", &team, false, "", "Readers: as before."},
		"kept for another":    {auth.MCPPath, "ana", "", &ofBen, false, "", "Readers: as before."},
		"a key, for me":       {auth.MCPPath, "", "me", &ofAna, true, "", "Readers: ana alone; members"},
		"a key":               {auth.MCPPath, "", "", &team, false, "", "Readers: the audience leads."},
		"a repeated key":      {auth.MCPPath, "", "", nil, false, "", "Readers: as before."},
		"an operator, for me": {auth.MCPOperatorPath, "", "me", &team, false, `"audience":"me"`, "Readers: the audience leads."},
	} {
		f.bound, placed, f.body = c.bound, c.placed, nil
		args := map[string]any{"content": "x", "id": "n"}
		if c.audience != "" {
			args["audience"] = c.audience
		}
		if c.bound == "" {
			args["identity"] = "ana"
		}
		r, done := f.callAt(t.Context(), c.path, "remember", args)
		done()
		text := r.Content[0].(*sdk.TextContent).Text
		if r.IsError || sent.Private != c.private || sent.PrivateIfNew || !sent.KeepAudience ||
			!strings.Contains(text, c.says) ||
			!strings.Contains(string(f.body), c.body) || strings.Contains(string(f.body), "audience") != (c.body != "") {
			t.Errorf("%s: private %t, sends %s: %s", name, sent.Private, f.body, text)
		}
	}
	f.bound = ""
	r, done := f.callAt(t.Context(), auth.MCPPath, "remember", map[string]any{"content": "x", "id": "n", "audience": "me"})
	done()
	if text := r.Content[0].(*sdk.TextContent).Text; !r.IsError || !strings.HasPrefix(text, "identity-required: ") {
		t.Errorf("a key without an identity: %s", text)
	}
}

// A person's text is private unless the call names another audience; a key's is not. The schemas say so.
func TestRemember_Default(t *testing.T) {
	for _, kind := range []auth.Kind{auth.Person, auth.ProjectKey} {
		for _, path := range []string{auth.MCPPath, auth.MCPOperatorPath} {
			c := &caller{}
			c.principal.Kind = kind
			u := &use{caller: c, path: path, identity: "ana", args: arguments{}}
			with, err := u.sendsTo()
			runtest.Must(t, err)
			want := kind == auth.Person && path == auth.MCPPath
			v := incoming{caller: c, path: path}.view()
			if with.PrivateIfNew != want || v.isPrivate() != want || strings.Contains(v.audienceText(), "Left out: me") != want ||
				strings.Contains(v.readersText(rememberTool()), "nobody else") != want {
				t.Errorf("%v at %s: private %t, %q", kind, path, with.PrivateIfNew, v.audienceText())
			}
			c.bound = "ana"
			if v := (incoming{caller: c, path: path}).view(); v.isPrivate() != want || !v.who.isBound() {
				t.Errorf("bound %v at %s: %+v", kind, path, v)
			}
		}
	}
	u := &use{caller: &caller{}, path: auth.MCPPath, args: arguments{"audience": json.RawMessage(`5`)}}
	if _, err := u.sendsTo(); err == nil {
		t.Error("a number is no audience")
	}
}
