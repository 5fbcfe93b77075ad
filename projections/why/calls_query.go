package why

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
)

const (
	// defaultPage is the size of a page of calls, defaultWindow the window that is listed.
	defaultPage   = 25
	defaultWindow = 24 * time.Hour
)

// statusClasses are the values of filter statusClass.
var statusClasses = map[string]int{"2xx": 2, "4xx": 4, "5xx": 5}

// CallQueryOf reads the parameters of a list or histogram, as API and console have them. The fault is invalid-range,
// range-too-wide, or invalid-request with the field that is wrong. paged is true for a list.
func CallQueryOf(
	values url.Values, now time.Time, project auth.Project, paged bool,
) (q requestlog.Query, err error) {
	var problems fields.Problems
	q.Statuses, q.Classes = statusesOf(values["status"], &problems), classesOf(values["statusClass"], &problems)
	q.Endpoints, q.KeyNames = namesOf(values, "endpoint", &problems), namesOf(values, "keyName", &problems)
	if search := strings.TrimSpace(values.Get("search")); search != "" {
		problems.CheckParameter("search", search, limit.SourceID)
		q.Search, q.SearchPoint = search, stream.DataPointID(project.Namespace, search)
	}
	if paged {
		q.First = problems.Count("first", values.Get("first"), limit.RequestPage, defaultPage)
		q.After = problems.Cursor("after", values.Get("after"), "requests")
	}
	from, to := problems.Instant("from", values.Get("from")), problems.Instant("to", values.Get("to"))
	if err := problems.Err(); err != nil {
		return q, err
	}
	if to == nil { // The call's own time is not part of the default window: it is received now.
		to = &instant.Written{At: now}
	}
	if q.To = to.End().UTC(); from == nil {
		q.From = q.To.Add(-defaultWindow)
		return q, nil
	}
	if q.From = from.At.UTC(); q.From.After(to.Last()) {
		return q, fault.New(fault.Invalid, fault.CodeInvalidRange, "from %s is after to %s",
			q.From.Format(time.RFC3339Nano), to.Last().UTC().Format(time.RFC3339Nano))
	}
	if to.At.Sub(q.From) > requestlog.MaxRange {
		return q, fault.New(fault.Invalid, fault.CodeRangeTooWide,
			"the window is longer than 31 days: bring from and to closer together")
	}
	return q, nil
}

// maxValues is the most values of one filter.
const maxValues = 100

func statusesOf(texts []string, problems *fields.Problems) []int {
	checkCount("status", texts, problems)
	var statuses []int
	for _, text := range texts {
		status, err := strconv.Atoi(text)
		if err != nil || len(text) != 3 || status < 100 || status > 599 {
			problems.Add("status", "is %.40q: want an HTTP status such as 202", text)
			continue
		}
		statuses = append(statuses, status)
	}
	return statuses
}

func classesOf(texts []string, problems *fields.Problems) []int {
	checkCount("statusClass", texts, problems)
	var classes []int
	for _, text := range texts {
		class, ok := statusClasses[text]
		if !ok {
			problems.Add("statusClass", "is %.40q: want 2xx, 4xx or 5xx", text)
			continue
		}
		classes = append(classes, class)
	}
	return classes
}

func namesOf(values url.Values, name string, problems *fields.Problems) []string {
	checkCount(name, values[name], problems)
	for _, text := range values[name] {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			problems.Add(name, "is not text in UTF-8 without U+0000")
		}
	}
	return slices.Clone(values[name])
}

func checkCount(name string, texts []string, problems *fields.Problems) {
	if len(texts) > maxValues {
		problems.Add(name, "occurs %d times: want at most %d", len(texts), maxValues)
	}
}
