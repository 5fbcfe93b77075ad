package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Cookies names the cookies of a console. Over https they are bound to the host (__Host-). The names hold the id of the
// log, so that two consoles on one host do not end each other's sessions.
type Cookies struct{ prefix string }

// NewCookies makes the names for the public address of a console and the id of its log.
func NewCookies(address string, log uuid.UUID) Cookies {
	prefix := "annals-" + log.String()[:8] + "-"
	if strings.HasPrefix(address, "https:") {
		prefix = "__Host-" + prefix
	}
	return Cookies{prefix}
}

// Value returns the value of a cookie of a request, "" for none.
func (c Cookies) Value(r *http.Request, name string) string {
	cookie, err := r.Cookie(c.prefix + name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// Set sets a cookie that scripts cannot read, for some time; 0 ends it.
func (c Cookies) Set(w http.ResponseWriter, name, value string, lives time.Duration) {
	cookie := &http.Cookie{
		Name: c.prefix + name, Value: value, Path: "/", MaxAge: int(lives.Seconds()), HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: strings.HasPrefix(c.prefix, "__Host-"),
	}
	if lives <= 0 {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// SessionCookie is the name of the cookie with the token of a session.
const SessionCookie = "session"

// KnownCookie is the name of the cookie with the marks of a known browser. It stays after the session.
const KnownCookie = "known"
