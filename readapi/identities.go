package readapi

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/directory"
)

// The limits of a page of identities; what is asked for beyond them is clamped.
const (
	maxIdentities     = 1000
	defaultIdentities = 100
)

// identities reads the directory of a project. The fault is service-unavailable while that cannot be told.
type identities interface {
	// Identities is a page of records, newest first, as of the call.
	Identities(ctx context.Context, project auth.Project, l directory.Listing) (directory.Identities, error)
	// Identity is a record with its audiences; ok is false where there is none.
	Identity(ctx context.Context, project auth.Project, name string) (i directory.Identity, ok bool, err error)
}

// identityList is a page of identities. EndCursor is null on an empty page.
type identityList struct {
	Identities []directory.Identity `json:"identities"`
	HasMore    bool                 `json:"hasMore"`
	EndCursor  *string              `json:"endCursor"`
}

type identityAPI struct {
	queries identities
}

// list is GET /api/v1/identities?after=&limit=&traitKey=&traitValue=: newest first. A limit that is out of range is clamped; a cursor
// that is none, a limit that is no integer, traitValue without traitKey, and a key or value that no trait can have are invalid-request.
func (a identityAPI) list(c echo.Context) error {
	listing, err := listingOf(c.QueryParams())
	if err != nil {
		return err
	}
	page, err := a.queries.Identities(c.Request().Context(), httpx.Principal(c).Project, listing)
	if err != nil {
		return err
	}
	answer := identityList{Identities: []directory.Identity{}, HasMore: page.More}
	if page.End != nil {
		cursor := cursorOf(*page.End)
		answer.EndCursor = &cursor
	}
	return httpx.Stream(c, answer, "identities", page.List)
}

// get is GET /api/v1/identities/:identity.
func (a identityAPI) get(c echo.Context) error {
	name, err := httpx.PathParam(c, "identity")
	if err != nil {
		return err
	}
	found, ok, err := a.queries.Identity(c.Request().Context(), httpx.Principal(c).Project, name)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no identity of that name")
	}
	if found.Audiences == nil {
		found.Audiences = []string{}
	}
	return c.JSON(http.StatusOK, found)
}

func listingOf(query url.Values) (directory.Listing, error) {
	var problems httpx.Problems
	listing := directory.Listing{Limit: limitOf(query, &problems)}
	if after := query.Get("after"); after != "" {
		mark, err := markOf(after)
		if err != nil {
			problems.Add("after", "%v", err)
		}
		listing.After = &mark
	}
	if query.Has("traitKey") {
		listing.Key = query.Get("traitKey")
		checkParameter(&problems, "traitKey", listing.Key, identity.MaxTraitKey)
	}
	if query.Has("traitValue") {
		value := query.Get("traitValue")
		checkParameter(&problems, "traitValue", value, identity.MaxTraitValue)
		listing.Value = &value
		if !query.Has("traitKey") {
			problems.Add("traitValue", "is the value of a trait: name it with traitKey")
		}
	}
	return listing, problems.Err()
}

// checkParameter notes what is wrong with the key or value of a trait.
func checkParameter(problems *httpx.Problems, name, value string, most int) {
	if !utf8.ValidString(value) {
		problems.Add(name, "is not UTF-8")
	} else if err := httpx.CheckName(value, 1, most); err != nil {
		problems.Add(name, "%v", err)
	}
}

// limitOf is the limit of a page, clamped.
func limitOf(query url.Values, problems *httpx.Problems) int {
	text := query.Get("limit")
	if text == "" {
		return defaultIdentities
	}
	limit, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-"):
		limit = maxIdentities
	case err != nil && !errors.Is(err, strconv.ErrRange):
		problems.Add("limit", "want an integer, got %.40q", text)
	}
	return min(max(limit, 1), maxIdentities)
}

// cursorOf is a mark as clients hold it.
func cursorOf(m directory.Mark) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(m.CreatedAt.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(raw, m.ID[:]...))
}

func markOf(cursor string) (directory.Mark, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) != 24 {
		return directory.Mark{}, errors.New("is no endCursor of a page of identities")
	}
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(raw))).UTC()
	if year := at.Year(); year < 1 || year > 9999 {
		return directory.Mark{}, errors.New("is no endCursor of a page of identities")
	}
	return directory.Mark{CreatedAt: at, ID: uuid.UUID(raw[8:])}, nil
}
