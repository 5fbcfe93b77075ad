package project

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/webhook"
)

// State is what decisions need of a project.
type State struct {
	LiveKeys map[uuid.UUID]bool
	// Webhooks are those that are not deleted, by id.
	Webhooks map[string]Webhook
	Archived bool
	// Name is "" until the name is changed. Until then, it is that of the creation.
	Name, Description string
	// IngestionCap and CreditCapTenths are the monthly caps, nil for none.
	IngestionCap    *int64
	CreditCapTenths *int64
	reads           Reads
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	switch e := e.(type) {
	case *KeyCreated:
		if s.LiveKeys == nil {
			s.LiveKeys = make(map[uuid.UUID]bool)
		}
		s.LiveKeys[e.KeyID] = true
	case *KeyRevoked:
		delete(s.LiveKeys, e.KeyID)
	case *Archived:
		s.Archived = true
	case *Unarchived:
		s.Archived = false
	case *Described:
		s.Name, s.Description = e.Name, e.Description
	case *CapsSet:
		s.IngestionCap, s.CreditCapTenths = e.IngestionCap, e.CreditCapTenths
	case *ReadsSet:
		s.reads = Reads{e.Mode, e.Days}
	default:
		s.evolveWebhook(e)
	}
}

// Slug derives a slug from a name: lower-case ASCII letters and digits, with one dash for each run
// of other characters. A name without an ASCII letter or digit gives "project".
func Slug(name string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(name) {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			gap = false
			b.WriteRune(r)
			continue
		}
		gap = true
	}
	if b.Len() == 0 {
		return "project"
	}
	return b.String()
}

// FreeSlug is the slug of a name, with "-2", "-3" … appended if it is taken.
func FreeSlug(name string, taken func(slug string) bool) string {
	slug := Slug(name)
	for n := 2; taken(slug); n++ {
		slug = Slug(name) + "-" + strconv.Itoa(n)
	}
	return slug
}

// ValidName reports whether a text can name a project: up to limit.ProjectName characters, at least
// two of them letters or digits.
func ValidName(name string) bool {
	characters, telling := 0, 0
	for _, r := range name {
		characters++
		if r == 0 {
			return false
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			telling++
		}
	}
	return characters <= limit.ProjectName && telling >= 2
}

// ReadsMode is whether it is recorded who was shown which texts of a project. The zero value is ReadsOff.
type ReadsMode string

// The modes.
const (
	ReadsOff ReadsMode = "off"
	// ReadsKept appends a read record within a second of the answer.
	ReadsKept ReadsMode = "kept"
	// ReadsProved appends it before the answer.
	ReadsProved ReadsMode = "proved"
)

// Valid reports whether a project may be set to the mode.
func (m ReadsMode) Valid() bool { return m == ReadsOff || m == ReadsKept || m == ReadsProved }

// Recorded is the mode of projects whose reads are recorded, "" for the others: for what is asked at each call.
func (m ReadsMode) Recorded() ReadsMode {
	if m == ReadsOff {
		return ""
	}
	return m
}

// Reads is the setting of a project.
type Reads struct {
	Mode ReadsMode
	// Days is how many days a record stays in the log.
	Days int
}

// DefaultReads is the setting of a project of which none was set.
func DefaultReads() Reads { return Reads{ReadsOff, limit.ReadDays} }

// ReadsSet sets whether the reads of a project are recorded, and for how many days.
type ReadsSet struct {
	ProjectID uuid.UUID `json:"projectId"`
	Mode      ReadsMode `json:"mode"`
	Days      int       `json:"days"`
	SetAt     time.Time `json:"setAt"`
}

func (ReadsSet) EventType() string { return "project.reads-set.v1" }

// SetReads decides the setting of reads. One that is set already stays as it is. The fault is invalid-request.
func (s State) SetReads(project uuid.UUID, reads Reads, at time.Time) ([]event.Event, error) {
	switch {
	case !reads.Mode.Valid():
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "reads is %.20q: want %s, %s or %s",
			reads.Mode, ReadsOff, ReadsKept, ReadsProved)
	case reads.Days < limit.LeastReadDays || reads.Days > limit.MostReadDays:
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "read records are kept for %d to %d days, not %d",
			limit.LeastReadDays, limit.MostReadDays, reads.Days)
	case s.ReadsSetting() == reads:
		return nil, nil
	}
	return []event.Event{&ReadsSet{ProjectID: project, Mode: reads.Mode, Days: reads.Days, SetAt: at}}, nil
}

// ReadsSetting is the setting of reads.
func (s State) ReadsSetting() Reads {
	if s.reads.Mode == "" {
		return DefaultReads()
	}
	return s.reads
}

// WebhookCreated adds a webhook to a project. TokenHash is the SHA-256 of its token in lower-case
// hexadecimal; TokenID names the sealed token in the vault. No event contains the clear token.
type WebhookCreated struct {
	ProjectID uuid.UUID        `json:"projectId"`
	WebhookID string           `json:"webhookId"`
	TokenID   uuid.UUID        `json:"tokenId"`
	TokenHash string           `json:"tokenHash"`
	Settings  webhook.Settings `json:"settings"`
	CreatedAt time.Time        `json:"createdAt"`
}

func (WebhookCreated) EventType() string { return "project.webhook-created.v1" }

// WebhookChanged replaces the settings of a webhook.
type WebhookChanged struct {
	ProjectID uuid.UUID        `json:"projectId"`
	WebhookID string           `json:"webhookId"`
	Settings  webhook.Settings `json:"settings"`
	ChangedAt time.Time        `json:"changedAt"`
}

func (WebhookChanged) EventType() string { return "project.webhook-changed.v1" }

// WebhookPaused refuses the events of a webhook until it is resumed.
type WebhookPaused struct {
	ProjectID uuid.UUID `json:"projectId"`
	WebhookID string    `json:"webhookId"`
	PausedAt  time.Time `json:"pausedAt"`
}

func (WebhookPaused) EventType() string { return "project.webhook-paused.v1" }

// WebhookResumed takes events of a webhook again.
type WebhookResumed struct {
	ProjectID uuid.UUID `json:"projectId"`
	WebhookID string    `json:"webhookId"`
	ResumedAt time.Time `json:"resumedAt"`
}

func (WebhookResumed) EventType() string { return "project.webhook-resumed.v1" }

// WebhookTokenRotated replaces the token of a webhook. The one before is refused from the next call on.
type WebhookTokenRotated struct {
	ProjectID uuid.UUID `json:"projectId"`
	WebhookID string    `json:"webhookId"`
	TokenID   uuid.UUID `json:"tokenId"`
	TokenHash string    `json:"tokenHash"`
	RotatedAt time.Time `json:"rotatedAt"`
}

func (WebhookTokenRotated) EventType() string { return "project.webhook-token-rotated.v1" }

// WebhookDeleted removes a webhook. Its data points stay.
type WebhookDeleted struct {
	ProjectID uuid.UUID `json:"projectId"`
	WebhookID string    `json:"webhookId"`
	DeletedAt time.Time `json:"deletedAt"`
}

func (WebhookDeleted) EventType() string { return "project.webhook-deleted.v1" }

// Webhook is what decisions need of a webhook.
type Webhook struct {
	TokenID  uuid.UUID
	Settings webhook.Settings
	Paused   bool
}

// evolveWebhook folds an event of a webhook.
func (s *State) evolveWebhook(e event.Event) {
	change := func(id string, change func(*Webhook)) {
		if w, ok := s.Webhooks[id]; ok {
			change(&w)
			s.Webhooks[id] = w
		}
	}
	switch e := e.(type) {
	case *WebhookCreated:
		if s.Webhooks == nil {
			s.Webhooks = make(map[string]Webhook)
		}
		s.Webhooks[e.WebhookID] = Webhook{TokenID: e.TokenID, Settings: e.Settings}
	case *WebhookChanged:
		change(e.WebhookID, func(w *Webhook) { w.Settings = e.Settings })
	case *WebhookPaused:
		change(e.WebhookID, func(w *Webhook) { w.Paused = true })
	case *WebhookResumed:
		change(e.WebhookID, func(w *Webhook) { w.Paused = false })
	case *WebhookTokenRotated:
		change(e.WebhookID, func(w *Webhook) { w.TokenID = e.TokenID })
	case *WebhookDeleted:
		delete(s.Webhooks, e.WebhookID)
	}
}

// CreateWebhook decides the creation of a webhook. Its fault is invalid-request if the project has as many
// as it may have.
func (s State) CreateWebhook(e WebhookCreated) ([]event.Event, error) {
	if len(s.Webhooks) >= limit.Webhooks {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"the project has %d webhooks, the most: delete one first", len(s.Webhooks))
	}
	return []event.Event{&e}, nil
}

// FindWebhook returns a webhook. The fault is not-found, also for a deleted one.
func (s State) FindWebhook(id string) (Webhook, error) {
	w, ok := s.Webhooks[id]
	if !ok {
		return w, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no webhook %.40q", id)
	}
	return w, nil
}

// SetWebhookPaused decides a pause or its end. A webhook that is so already stays as it is. The fault is
// not-found.
func (s State) SetWebhookPaused(project uuid.UUID, id string, paused bool, at time.Time) ([]event.Event, error) {
	w, err := s.FindWebhook(id)
	switch {
	case err != nil || w.Paused == paused:
		return nil, err
	case paused:
		return []event.Event{&WebhookPaused{ProjectID: project, WebhookID: id, PausedAt: at}}, nil
	default:
		return []event.Event{&WebhookResumed{ProjectID: project, WebhookID: id, ResumedAt: at}}, nil
	}
}
