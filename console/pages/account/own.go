package account

import (
	"errors"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/google/uuid"
	"rsc.io/qr"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/visit"
)

// own is what the page of one's account shows.
type own struct {
	Email    string               `json:"email"`
	Verified bool                 `json:"verified"`
	State    signin.State         `json:"state"`
	Sessions []signin.OpenSession `json:"sessions"`
	Current  uuid.UUID            `json:"session"`
	Mail     bool                 `json:"mail"`
	Shortest int                  `json:"shortestPassword"`
	Longest  int                  `json:"longestPassword"`
	// Fresh means that the person proved to be that person a short while ago.
	Fresh bool `json:"fresh"`
}

func (d Deps) own(r *web.Request) (o own, err error) {
	states, err := d.SignIn.States(r.Context(), r.Person.ID)
	if err != nil {
		return o, err
	}
	state := states[r.Person.ID]
	sessions, err := d.SignIn.Sessions(r.Context(), r.Person.ID)
	return own{
		r.Person.Email, d.SignIn.Verified(state, r.Person.Email), state, sessions, r.Session.ID, d.Mail.Set(),
		signin.MinPassword, signin.MaxPassword, d.SignIn.Fresh(r.Session),
	}, err
}

func (d Deps) account(r *web.Request) error {
	data, err := d.own(r)
	if err != nil {
		return err
	}
	return r.Render("account.html", data)
}

// change does what a form of the account asks for, and shows the page again if its input is wrong. What lacks a fresh
// proof leads to the page that asks for one.
func (d Deps) change(r *web.Request, do func() (done string, err error)) error {
	done, err := do()
	if err == nil {
		return r.Done("/account", done)
	}
	if errors.Is(err, signin.ErrProof) {
		return toConfirm(r, "/account")
	}
	data, unread := d.own(r)
	if unread != nil {
		return errors.Join(err, unread)
	}
	return r.Invalid(described(r, err), "account.html", data)
}

func (d Deps) changePassword(r *web.Request) error {
	return d.change(r, func() (string, error) {
		err := d.SignIn.ChangePassword(r.Context(), r.Session, r.Membership.Organization, r.Raw("current"), r.Raw("password"))
		if err == nil {
			err = d.visited(r, &visit.PasswordChanged{})
		}
		return "saved", err
	})
}

func (d Deps) setZone(r *web.Request) error {
	return d.change(r, func() (string, error) {
		known, err := d.SignIn.SetZone(r.Context(), r.Person.ID, r.Field("zone"))
		if err == nil && !known {
			err = fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no time zone %q: write one as Europe/Vienna",
				r.Field("zone"))
		}
		return "saved", err
	})
}

// mailAddress mails a link that verifies the address of the person, or changes it to another one.
func (d Deps) mailAddress(r *web.Request) error {
	return d.change(r, func() (string, error) {
		if !d.SignIn.Fresh(r.Session) {
			return "", signin.ErrProof
		}
		email := r.Field("email")
		if !d.Mail.Set() || !person.ValidEmail(email) {
			return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no e-mail address", email)
		}
		if err := d.SignIn.LimitMail(r.Context(), clientOf(r), email); err != nil {
			return "", err
		}
		return "sent", d.mailLink(r, signin.Link{Purpose: signin.Verification, Person: r.Person.ID, Email: email})
	})
}

// endSessions ends one session, or all; with them the one of this browser and, if the form asks for it, what programs
// may do.
func (d Deps) endSessions(r *web.Request) error {
	if r.PostFormValue("session") != "" {
		return d.change(r, func() (string, error) {
			id, err := uuid.Parse(r.Field("session"))
			if err != nil {
				return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no such session")
			}
			if err = d.SignIn.EndSession(r.Context(), r.Person.ID, id); err == nil {
				err = d.visited(r, &visit.SessionsEnded{Ended: visit.OneEnded})
			}
			return "ended", err
		})
	}
	if err := d.SignIn.SignOutEverywhere(r.Context(), r.Person.ID, r.Field("programs") != ""); err != nil {
		return err
	}
	if err := d.visited(r, &visit.SessionsEnded{Ended: visit.Everywhere}); err != nil {
		return err
	}
	return d.leaveSession(r)
}

const (
	enrolPath = "/account/second-factor"
	// enrolCookie has the key of a second factor that is being set up, sealed, for a while.
	enrolCookie = "enrol"
	enrolLife   = 15 * time.Minute
)

// enrolment is a second factor that is being set up.
type enrolment struct {
	signin.Enrolment

	Picture template.HTML `json:"-"`
	// Required means that the organization of the person asks for one.
	Required bool
}

func (d Deps) enrolment(r *web.Request, sealed string) (enrolment, error) {
	made, err := d.SignIn.Enrol(r.Person.ID, r.Person.Email, sealed)
	if err != nil {
		return enrolment{}, err
	}
	picture, err := picture(made.URI)
	return enrolment{made, picture, r.Membership.SecondFactor}, err
}

func (d Deps) enrolPage(r *web.Request) error {
	if !d.SignIn.Fresh(r.Session) {
		return toConfirm(r, enrolPath)
	}
	// Another look shows the same key: it may have been scanned.
	data, err := d.enrolment(r, r.Cookies().Value(r.Request, enrolCookie))
	if err != nil {
		data, err = d.enrolment(r, "")
	}
	if err != nil {
		return err
	}
	r.Cookies().Set(r.Writer(), enrolCookie, data.Sealed, enrolLife)
	return r.Render("enrol.html", data)
}

func (d Deps) enrol(r *web.Request) error {
	sealed := r.PostFormValue("sealed")
	next, codes, err := d.SignIn.Confirm(r.Context(), r.Session, attemptOf(r), sealed, r.Field("code"))
	if errors.Is(err, signin.ErrProof) {
		return toConfirm(r, enrolPath)
	}
	if err != nil {
		data, unsealed := d.enrolment(r, sealed)
		if unsealed != nil {
			return described(r, err)
		}
		return r.Invalid(described(r, err), "enrol.html", data)
	}
	d.setCookies(r, next)
	r.Cookies().Set(r.Writer(), enrolCookie, "", 0)
	if err := d.visited(r, &visit.SecondFactorChanged{Change: visit.FactorSet}); err != nil {
		return err
	}
	began, _, err := d.SignIn.Session(r.Context(), next.Token)
	if err != nil {
		return err
	}
	return web.ShowOnceTo(r, began.ID, codesPath, codes)
}

const codesPath = "/account/recovery-codes"

// codesPage shows new recovery codes once.
func (d Deps) codesPage(r *web.Request) error {
	codes, err := web.Once[[]string](r)
	if err != nil {
		return err
	}
	return r.Render("codes.html", codes)
}

func (d Deps) recoveryCodes(r *web.Request) error {
	codes, err := d.SignIn.NewRecoveryCodes(r.Context(), r.Person.ID, r.Field("code"))
	if err != nil {
		return d.change(r, func() (string, error) { return "", err })
	}
	if err := d.visited(r, &visit.SecondFactorChanged{Change: visit.CodesMade}); err != nil {
		return err
	}
	return web.ShowOnce(r, codesPath, codes)
}

func (d Deps) removeSecondFactor(r *web.Request) error {
	return d.change(r, func() (string, error) {
		err := d.SignIn.RemoveSecondFactor(r.Context(), r.Person.ID, r.Field("code"))
		if err == nil {
			err = d.visited(r, &visit.SecondFactorChanged{Change: visit.FactorRemoved})
		}
		return "deleted", err
	})
}

// picture is a text as a QR code, dark on light in each theme, since apps read no other.
func picture(text string) (template.HTML, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fmt.Errorf("draw a QR code: %w", err)
	}
	const quiet = 4
	size := code.Size + 2*quiet
	var dark strings.Builder
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&dark, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	return template.HTML(fmt.Sprintf(`<svg width="240" height="240" viewBox="0 0 %d %d" role="img" `+ //nolint:gosec // numbers
		`aria-label="QR code of the key"><path fill="#fff" d="M0 0h%dv%dH0z"/><path fill="#000" d="%s"/></svg>`,
		size, size, size, size, dark.String())), nil
}
