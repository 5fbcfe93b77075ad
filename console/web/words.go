package web

import (
	"net/http"

	"github.com/annals-project/annals/domain/fault"
)

type messages struct {
	foreignForm, signInFirst, needs, unverified, guest, wrongPlace, formSent, away, noTexts string
	// headings are those of pages of faults, by status.
	headings map[int]string
	// ask is what is asked before a change, by the key that Request.AskFirst takes.
	ask map[string]string
	// done is the notice of a page after a change, by the key that Request.Done takes.
	done map[string]string
	// help is what to do after a fault, by its code.
	help map[string]string
}

// words are the messages of the console that are in no template. A translation replaces them and the templates.
var words = messages{
	foreignForm: "this form was not sent from a page of this console, so nothing was changed. This console is at %s: " +
		"open it there, and send the form again",
	away: "the database does not answer. Nothing was changed. This page tries again every few seconds",
	headings: map[int]string{
		http.StatusBadRequest:            "This cannot be done as it was sent",
		http.StatusUnauthorized:          "Sign in first",
		http.StatusForbidden:             "You may not do this",
		http.StatusNotFound:              "There is no such page",
		http.StatusMethodNotAllowed:      "This address takes no such request",
		http.StatusConflict:              "It is not as it was",
		http.StatusRequestEntityTooLarge: "That is too much at once",
		http.StatusTooManyRequests:       "Too often",
		http.StatusInternalServerError:   "It failed",
		http.StatusServiceUnavailable:    "Not available now",
	},
	ask: map[string]string{
		"archive":         "Archive this project? Its keys and webhooks are refused until it is unarchived.",
		"remove-member":   "Remove this person from the organization? It ends at once.",
		"password":        "Make a link by which another password is set? What the person signs in with ends when it is used.",
		"second-factor":   "End the second factor and all sessions of this person?",
		"management-key":  "Replace the management key? The present one is refused at once.",
		"delete-audience": "Delete this audience? Nobody reads its data points then.",
	},
	signInFirst: "you are not signed in: sign in, then send the form again",
	needs:       "you may not do this: it needs the right %q here. An Admin of the organization can give it to you",
	unverified: "you did not prove the address that your organization invited, and another one let you in: use \"Forgot " +
		"your password?\" on the page to sign in, or ask an Admin of yours or who operates this service for a link",
	guest: "you are a member of no organization: accept an offer first, on the page \"Offers\"",
	noTexts: "auditors of this organization see no texts, and this page has some: an Owner can allow it under " +
		"\"Organization\"",
	formSent: "this form was sent already, so it did nothing again: it may still be worked on. Look at the page of what " +
		"it changes before you fill it in once more",
	wrongPlace: "the place in the list is wrong: open the list again",
	done: map[string]string{
		"saved":    "Saved.",
		"created":  "Created.",
		"deleted":  "Deleted.",
		"revoked":  "Revoked. It is refused from now on.",
		"sent":     "Sent.",
		"retried":  "It is being tried again.",
		"ended":    "Ended.",
		"left":     "You left the organization.",
		"declined": "Declined.",
	},
	help: map[string]string{
		fault.CodeNotFound:             "Check the address, or look for an id with the search box.",
		fault.CodeInsufficientScope:    "Ask an Admin of the organization.",
		fault.CodeServiceUnavailable:   "Nothing was changed. Try again in a moment; Health shows what is wrong.",
		fault.CodeTimeout:              "It is not known whether it took effect. Open the page again to see.",
		fault.CodeInternal:             "Quote the id of the request to who runs this service.",
		fault.CodeConflict:             "Open the page again: it has changed since you opened it.",
		fault.CodeContentTooLarge:      "Send less at once.",
		fault.CodeProjectArchived:      "Unarchive the project first.",
		fault.CodeOrganizationNotReady: "The organization is still being created. Try again in a moment.",
		codeSignIn:                     "Sign in, then send the form again.",
	},
}
