package signin

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A known browser is one in which a person signed in before. Its cookie holds a mark, a random token, for each person
// who did, so that their attempts are counted apart and never wait for those of strangers. A mark is no right: it lets
// nobody in, and an attempt with a mark that is made up, or of another person, counts as that of a stranger.
const (
	// KnownLife is how long a browser is known after the last sign-in.
	KnownLife = 180 * 24 * time.Hour
	// maxKnown is the most browsers that are known of a person; a new one replaces the one of the oldest sign-in.
	maxKnown = 20
	// maxMarks is how many people one browser is known of.
	maxMarks = 4
)

// mark is one of a known browser.
type mark struct {
	text   string
	person uuid.UUID
}

// marksOf returns the marks that a client shows and that are known, in the order of the cookie.
func (s *Service) marksOf(ctx context.Context, on querier, c Client) (known []mark, err error) {
	var shown []string
	var hashes [][]byte
	for text := range strings.SplitSeq(c.Known, ".") {
		if len(text) == base64.RawURLEncoding.EncodedLen(tokenBytes) && len(shown) < maxMarks {
			shown, hashes = append(shown, text), append(hashes, hashToken(text))
		}
	}
	if len(shown) == 0 {
		return nil, nil
	}
	type row struct {
		Token  []byte
		Person uuid.UUID
	}
	rows, err := all(ctx, on, pgx.RowToStructByPos[row], `select token, person_id from ops.signin_browsers
		where token = any($1) and used_at > $2`, hashes, s.now().Add(-KnownLife))
	for i, text := range shown {
		for _, r := range rows {
			if string(r.Token) == string(hashes[i]) {
				known = append(known, mark{text, r.Person})
			}
		}
	}
	return known, err
}

// KnownBrowser returns the person who signed in last in a browser that shows a cookie, or uuid.Nil if it is not known.
func (s *Service) KnownBrowser(ctx context.Context, cookie string) (uuid.UUID, error) {
	known, err := s.marksOf(ctx, s.DB, Client{Known: cookie})
	if err != nil || len(known) == 0 {
		return uuid.Nil, err
	}
	return known[0].person, nil
}

// countMarks counts an attempt at each mark of a client, and returns those that are not used up. counted is what to
// forgive.
func (s *Service) countMarks(ctx context.Context, c Client) (usable []mark, counted [][]byte, err error) {
	known, err := s.marksOf(ctx, s.DB, c)
	if err != nil || len(known) == 0 {
		return nil, nil, err
	}
	for _, m := range known {
		counted = append(counted, s.keyed("browser", m.text))
	}
	failures, err := s.count(ctx, counted...)
	if err != nil {
		return nil, nil, err
	}
	for i, m := range known {
		if failures[i].Failures <= s.PairFailures {
			usable = append(usable, m)
		}
	}
	return usable, counted, nil
}

// remember makes the browser of a client known of a person who signed in, with a new mark. It returns the value of the
// cookie, in which the marks of other people stay.
func (s *Service) remember(
	ctx context.Context, on querier, b *pgx.Batch, c Client, person uuid.UUID,
) (cookie string, err error) {
	known, err := s.marksOf(ctx, on, c)
	if err != nil {
		return "", err
	}
	text := newToken()
	marks, former := []string{text}, [][]byte{}
	for _, m := range known {
		if m.person == person {
			former = append(former, hashToken(m.text))
		} else if len(marks) < maxMarks {
			marks = append(marks, m.text)
		}
	}
	b.Queue(`delete from ops.signin_browsers where token = any($1)`, former)
	b.Queue(`insert into ops.signin_browsers (token, person_id, used_at) values ($1, $2, $3)`, hashToken(text), person, s.now())
	b.Queue(`delete from ops.signin_browsers where token in (select token from ops.signin_browsers
		where person_id = $1 order by used_at desc, token offset $2)`, person, maxKnown)
	return strings.Join(marks, "."), nil
}

// isOf reports whether a mark of a person is among some.
func isOf(marks []mark, person uuid.UUID) bool {
	return person != uuid.Nil && slices.ContainsFunc(marks, func(m mark) bool { return m.person == person })
}

// factorAttempts is what counts the codes of who passed the password of a person: a known browser, or all others. Who
// knows the password alone must not keep its person out.
func (s *Service) factorAttempts(ctx context.Context, person uuid.UUID, c Client) ([]byte, error) {
	known, err := s.marksOf(ctx, s.DB, c)
	for _, m := range known {
		if m.person == person {
			return s.keyed("second factor of a browser", m.text), err
		}
	}
	return s.keyed("second factor at sign-in", person.String()), err
}
