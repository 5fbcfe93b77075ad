package operatorapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/annals-project/annals/internal/peersocket"
)

// WhoFlags are flags of the commands of an operator. A command without --as names the user of this system.
type WhoFlags struct {
	As     string `name:"as" placeholder:"NAME" help:"Your name, for History; default the user of this system."`
	Reason string `name:"reason" placeholder:"TEXT" help:"Why you do it, for History."`
}

// Who is who calls the service, and why, as that person wrote it.
type Who struct{ As, Reason string }

type whoKey struct{}

// WithWho returns a context whose calls name who makes them.
func WithWho(ctx context.Context, who Who) context.Context {
	return context.WithValue(ctx, whoKey{}, who)
}

// WhoOf returns who makes the calls of a context.
func WhoOf(ctx context.Context) Who {
	who, _ := ctx.Value(whoKey{}).(Who)
	return who
}

// The headers of a call.
const (
	headerAs     = "Annals-As"
	headerReason = "Annals-Reason"
)

// setOn writes who into the headers of a call.
func (w Who) setOn(h http.Header) {
	for name, text := range map[string]string{headerAs: w.As, headerReason: w.Reason} {
		if text != "" {
			h.Set(name, url.QueryEscape(text))
		}
	}
}

// whoIn reads who from the headers of a call.
func whoIn(h http.Header) Who {
	read := func(name string, most int) string {
		text, err := url.QueryUnescape(h.Get(name))
		if err != nil {
			return ""
		}
		return cleaned(text, most)
	}
	return Who{As: read(headerAs, maxRemark), Reason: read(headerReason, maxReason)}
}

// maxReason is the longest reason in characters.
const maxReason = 500

// cleaned is a text of an operator without control characters, cut to some characters.
func cleaned(text string, most int) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text))
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most])
	}
	return text
}

// texts are the commands that show texts, by the paths of their operations. secrets are the paths of those that show
// secrets.
var (
	texts = map[string]string{
		pathExport: "annals export", pathExportPerson: "annals export --identity", tailLog.path: "annals events tail",
		readEvents.path: "annals events read", ExplainRecall.path: "annals recall --explain",
		MakeBackup.path: "annals backup", ProveWithSalt.path: "annals audit prove --with-salt",
		ShowRead.path: "annals audit show",
	}
	secrets = []string{
		"/operator/keys/reveal", "/operator/keys/create", "/operator/organizations/rotate-management-key", LinkPerson.path,
	}
)

// ShowsTexts returns the command that a call of the socket is of if it shows texts, else "".
func ShowsTexts(r *http.Request) string { return texts[r.URL.Path] }

// RequireReason refuses calls without a reason that show texts or secrets. Handler made next.
func RequireReason(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (ShowsTexts(r) != "" || slices.Contains(secrets, r.URL.Path)) && whoIn(r.Header).Reason == "" {
			answers{logger}.refuse(w, r, Refuse("this shows texts or secrets: give the reason with --reason"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// by returns the name for events: that of the peer, and the name that the client sent as a remark
// if it differs.
func by(ctx context.Context, remark string) (string, error) {
	p, known := peersocket.Of(ctx)
	if !known {
		return "", errors.New("the user at the other end of the socket is not known")
	}
	name := "operator " + p.Name()
	remark = cleaned(remark, maxRemark)
	if remark == "" || remark == name {
		return name, nil
	}
	return name + " (says: " + remark + ")", nil
}

// maxRemark is the longest remark in characters.
const maxRemark = 100
