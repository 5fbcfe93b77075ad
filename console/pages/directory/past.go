package directory

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/projections/directory"
)

// asOf is the time in the past that the URL asks about, nil for now. A day alone is its end.
func asOf(r *web.Request) (at *time.Time, err error) {
	text := r.URL.Query().Get("at")
	if text == "" {
		return at, nil
	}
	w, err := instant.ReadIn(text, r.Zone())
	if err != nil {
		return nil, invalid("as of: %v", err)
	}
	last, now := w.Last().UTC(), r.Now()
	if w.DateOnly && w.At.Before(now) && last.After(now) {
		last = now
	}
	if last.After(now) {
		return nil, invalid("%s", words.future)
	}
	return &last, nil
}

// pastAudience is what an audience was at a time.
type pastAudience struct {
	At time.Time `json:"at"`
	// Lost limits the members to who lost access since.
	Lost       bool           `json:"lost"`
	Definition *audience.Kind `json:"definition"`
	Rule       *audience.Rule `json:"rule,omitempty"`
	Erased     int64          `json:"erasedSince"`
}

// membersAt reads a part of the members at a time.
func (d Deps) membersAt(
	r *web.Request, slug string, past *pastAudience, after, before string, most int,
) (web.Part[directory.Member], error) {
	return web.Forwards(after, before, func(at string) ([]directory.Member, string, error) {
		listing := directory.PastListing{At: past.At, Lost: past.Lost, Limit: most}
		if at != "" {
			place, err := uuid.Parse(at)
			if err != nil {
				return nil, "", web.WrongPlace()
			}
			listing.After = place
		}
		found, ok, err := d.Directory.MembersAt(r.Context(), r.Project.Project, slug, listing)
		if err = notFound(err, ok, words.noAudience, slug); err != nil {
			return nil, "", err
		}
		past.Definition, past.Rule, past.Erased = found.Definition, found.Rule, found.Erased
		next := ""
		if found.Next {
			next = found.End.String()
		}
		return found.List, next, nil
	})
}

// Losses are links to who lost access in some days.
func (p audiencePage) Losses(r *web.Request) (list []web.Link) {
	for _, days := range []int{1, 7, 30, 365} {
		at := r.Now().AddDate(0, 0, -days).Truncate(time.Second).Format(time.RFC3339)
		list = append(list, web.Link{Text: strconv.Itoa(days) + " d", Path: r.With("at", at, "lost", "1")})
	}
	return list
}
