package browser

import (
	"context"
	"fmt"
	"html/template"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/svg"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
)

// partsPage has one of each thing that pages are made of.
type partsPage struct {
	At                                                time.Time
	Pager                                             web.Pager
	Chart, Legend, Table, Progress, Lineage, Timeline template.HTML
}

func newPartsPage() partsPage {
	at := time.Date(2026, 11, 26, 9, 30, 0, 0, time.UTC)
	bars := svg.Bars{Label: "Calls", Heading: "Hour", Series: []svg.Series{{Name: "answered", Class: "good"}, {Name: "refused", Class: "warn"}, {Name: "failed", Class: "bad"}}}
	values := make([]float64, 48)
	for i := range values {
		values[i] = math.Round(40 + 30*math.Sin(float64(i)/4))
		hour := at.Add(time.Duration(i) * time.Hour)
		bars.Bars = append(bars.Bars, svg.Bar{
			Label: hour.Format("2 Jan 15:04"), Tick: hour.Format("15:04"), Href: fmt.Sprint("/?hour=", i),
			Values: []float64{values[i], float64(i % 5), float64(i % 3)},
		})
	}
	lineage := svg.Lineage{Label: "Lineage", Folded: func(n int) string { return fmt.Sprint(n, " more") }, Nodes: []svg.Node{
		{ID: "a", Title: "Planning call", Subtitle: "data point of 12 May 2025", Href: "/a", Class: "source"},
		{ID: "b", Title: "The launch is on 3 June 2025", Subtitle: "claim", Href: "/b", Class: "root", Inputs: svg.Link{Text: "+ 2 inputs", Href: "/b?i"}},
		{ID: "c", Title: "Never deploy on Fridays", Subtitle: "rule", Href: "/c"},
		{ID: "d", Title: "Launch", Subtitle: "summary of 14 memories", Href: "/d"},
	}, Edges: []svg.Edge{{From: "a", To: "b"}, {From: "a", To: "c"}, {From: "b", To: "d", Class: "superseded"}, {From: "c", To: "d"}}}
	timeline := svg.Timeline{
		Label: "Timeline", Rows: []string{"Occurred", "Arrived", "Searchable"},
		From: at.Add(-time.Hour), To: at.Add(24 * time.Hour), Zone: time.UTC,
	}
	for i := range 12 {
		t := at.Add(time.Duration(i*i) * 10 * time.Minute)
		moment := svg.Moment{
			Title: fmt.Sprint("Memory ", i), Href: fmt.Sprint("/m", i), At: []time.Time{t, t.Add(time.Minute), t.Add(time.Hour)},
		}
		if i == 4 {
			moment.Class = "root"
		}
		timeline.Moments = append(timeline.Moments, moment)
	}
	return partsPage{
		At: at, Pager: web.Pager{Next: "n", Previous: "p", Total: "more than 10,000"}, Chart: bars.SVG(), Legend: bars.Legend(),
		Table: bars.Table(), Progress: svg.Progress("3 of 7 files", 3, 7),
		Lineage: lineage.Draw().SVG, Timeline: timeline.SVG(),
	}
}

// oneOwner is signed in as the owner of one organization.
type oneOwner struct{}

func (oneOwner) KnownBrowser(context.Context, string) (uuid.UUID, error) { return uuid.Nil, nil }

func (oneOwner) Opens(signin.Session, string, uuid.UUID) bool { return true }

func (oneOwner) Session(context.Context, string) (signin.Session, bool, error) {
	return signin.Session{Person: uuid.Max}, true, nil
}

func (oneOwner) Memberships(_ context.Context, id uuid.UUID) (access.Person, bool, error) {
	return access.Person{ID: id, Email: "ana@acme.example", Memberships: []access.Membership{
		{Organization: uuid.Max, Name: "Acme", Role: organization.Owner, Prepared: true, First: true},
	}}, true, nil
}

func (oneOwner) ProjectNamed(_ context.Context, _ uuid.UUID, slug string) (auth.Named, bool, error) {
	return auth.Named{Project: auth.Project{ID: uuid.Max, Slug: slug}}, true, nil
}

// newParts serves the page of parts, and a person who looks at it.
func newParts(t *testing.T) *person {
	t.Helper()
	needBrowser(t)
	show := func(r *web.Request) error { return r.Render("parts.html", newPartsPage()) }
	server := httptest.NewUnstartedServer(nil)
	address := "http://" + server.Listener.Addr().String()
	var routes []web.Route
	for _, path := range []string{"/{$}", "/1", "/p/{project}", "/p/{project}/recall", "/p/{project}/data", "/health", "/usage"} {
		routes = append(routes, web.Route{Pattern: "GET " + path, Needs: web.SignedIn, Serve: show})
	}
	site, err := web.New(web.Config{
		URL: address, Sessions: oneOwner{}, Access: oneOwner{}, Cookies: web.NewCookies(address, uuid.Nil),
		Instance: web.Instance{Name: "Staging", Colour: "amber"}, Admit: func() error { return nil },
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}, []web.Area{{Templates: os.DirFS("testdata"), Routes: routes}})
	runtest.Must(t, err)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.AddCookie(&http.Cookie{Name: "annals-00000000-session", Value: "x"})
		runtest.Must(t, site.Serve(w, r, &httpx.PageNote{}))
	})
	server.Start()
	t.Cleanup(server.Close)
	return newPerson(t, address)
}

// TestParts_AreAccessible looks at what pages are made of, in both themes and at the width of a phone.
func TestParts_AreAccessible(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	p.open("/p/default/data")
	p.answered(http.StatusOK)
	p.accessible()
	p.fits()
	p.shoot("parts")
}

// TestParts_ByKeyboard goes through a page as the keys of the console do.
func TestParts_ByKeyboard(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	p.open("/p/default/data")
	p.press("\t")
	p.focused("Skip to the content")
	p.press("/")
	p.focused("Find an id")
	p.press("jk/")
	p.focused("Find an id")
	p.press(kb.Escape)
	p.press("j")
	p.focused("Planning call")
	p.press("j")
	p.focused("a-very-long-id")
	p.press("k")
	p.focused("Planning call")
	p.press(kb.Enter)
	p.await("the row is opened", func() error {
		if at := p.address(); at != "/1" {
			return fmt.Errorf("the page is %s", at)
		}
		return nil
	})
}

// TestParts_OpenBesideTheList opens a part of another page in the drawer, with the keyboard, and closes it.
func TestParts_OpenBesideTheList(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	const shown = `document.querySelectorAll("#drawer #beside").length`
	drawn := func(want int) {
		t.Helper()
		p.await("the drawer", func() error {
			n, err := evaluate[int](p.ctx, shown)
			if err == nil && n != want {
				err = fmt.Errorf("it shows %d parts, want %d", n, want)
			}
			return err
		})
	}
	p.open("/p/default/data")
	p.click("link", "Open beside")
	drawn(1)
	p.focused("Details")
	p.press(kb.Escape)
	drawn(0)
	p.focused("Open beside")
	p.press(kb.Enter)
	drawn(1)
	p.click("button", "Close")
	drawn(0)
	if at := p.address(); at != "/p/default/data" {
		t.Errorf("the page is %s", at)
	}
	p.click("link", "Open what is not there")
	p.await("the page behind the link", func() error {
		if at := p.address(); at != "/1?whole" {
			return fmt.Errorf("the page is %s", at)
		}
		return nil
	})
}

// TestParts_TimesAreInTheZoneOfTheBrowser opens a page twice: the first one sets the zone.
func TestParts_TimesAreInTheZoneOfTheBrowser(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	p.must(call(p.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}))
	p.open("/1")
	p.see("2026-11-26 09:30:00 UTC")
	p.open("/1")
	p.see("2026-11-26 15:00:00")
}
