package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/annals-project/annals/internal/runtest"
)

// patience bounds how long a page may take to show what is expected. It catches what never comes.
const patience = time.Minute

//go:embed testdata/kit.js
var kit string

// person is somebody at a browser, with cookies of their own.
type person struct {
	t    *testing.T
	ctx  context.Context
	base string
	// clicks counts what a person clicked, fields what they filled.
	clicks, fields int
	faults         faults
	// status is that of the page that was opened last.
	status statuses
}

// newPerson opens a window on the console at base. When the test ends, it fails for all that the pages complained of.
func newPerson(t *testing.T, base string) *person {
	t.Helper()
	needBrowser(t)
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	p := &person{t: t, ctx: ctx, base: base}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page at the end:\n%.4000s", p.text())
		}
		p.checkFaults()
		cancel()
	})
	p.must(chromedp.Listen(ctx, p.listen))
	p.must(call(ctx, log.Enable, cdp.Empty{}))
	p.must(call(ctx, network.Enable, network.EnableParams{}))
	p.must(call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: kit}))
	p.resize(1280, 900)
	p.theme("light")
	return p
}

// listen notes what a page complains of, and the status of documents.
func (p *person) listen(ev any) {
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		p.faults.add("exception: " + ev.ExceptionDetails.Text + " at " + ev.ExceptionDetails.URL)
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeWarning {
			words := make([]string, 0, len(ev.Args))
			for _, arg := range ev.Args {
				words = append(words, string(arg.Value)+arg.Description)
			}
			// htmx reports a request that the person has overtaken, such as a preview by the next one.
			if said := strings.Join(words, " "); !strings.Contains(said, "htmx:sendAbort") && !strings.Contains(said, "htmx:afterRequest") {
				p.faults.add("console: " + said)
			}
		}
	case *log.EventEntryAdded:
		// What is refused on purpose is checked by its status.
		refused := ev.Entry.Source == log.EntrySourceNetwork && strings.Contains(ev.Entry.Text, "status of 4")
		if ev.Entry.Level == log.EntryLevelError && !refused {
			p.faults.add(fmt.Sprintf("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL))
		}
	case *network.EventResponseReceived:
		if ev.Type == network.ResourceTypeDocument {
			p.status.set(ev.Response.Status)
		} else if ev.Response.Status >= 400 {
			p.faults.add(fmt.Sprintf("%s %s: %d", ev.Type, ev.Response.URL, ev.Response.Status))
		}
	}
}

func (p *person) must(err error) {
	p.t.Helper()
	runtest.Must(p.t, err)
}

// open goes to an address of the console, as somebody who types it.
func (p *person) open(path string) {
	p.t.Helper()
	p.must(p.visit(path))
	p.checkFaults()
}

func (p *person) visit(path string) error {
	address := path
	if strings.HasPrefix(path, "/") {
		address = p.base + path
	}
	return chromedp.Do(p.ctx, chromedp.Navigate(address))
}

// click clicks the button or the link with a name, and waits for the answer if it asks the server. Inside, if given, is
// a text of the row, the form or the part of the page where it is.
func (p *person) click(kind, name string, inside ...string) {
	p.t.Helper()
	element := find(kind, name, inside...)
	var at struct {
		X, Y  float64
		Leads bool
		State state
	}
	p.await("click "+kind+" "+name, func() (err error) {
		at, err = evaluate[struct {
			X, Y  float64
			Leads bool
			State state
		}](p.ctx, `(() => { const e = `+element+`; return {...__kit.point(e), leads: __kit.leads(e), state: __kit.state()} })()`)
		return err
	})
	p.clicks++
	p.must(chromedp.Do(p.ctx, chromedp.MouseClickXY(at.X, at.Y)))
	if at.Leads {
		p.await("an answer to "+name, func() error { return p.changed(at.State) })
	}
	p.checkFaults()
}

// state is what the kit knows of a document.
type state struct {
	Token   string
	Settled int
	URL     string
	Ready   bool
}

// changed returns nil once another document is loaded, or a part of the same one was replaced.
func (p *person) changed(before state) error {
	now, err := evaluate[state](p.ctx, `__kit.state()`)
	switch {
	case err != nil:
		return err
	case !now.Ready:
		return fmt.Errorf("%s is not loaded", now.URL)
	case now.Token == before.Token && now.Settled == before.Settled:
		return fmt.Errorf("%s has not changed", now.URL)
	}
	return nil
}

// fill sets the field with a label: it types a text, chooses an option, or picks a date. Other fields, such as boxes to
// tick, are clicked.
func (p *person) fill(label, value string, inside ...string) {
	p.t.Helper()
	element := find("field", label, inside...)
	var typed bool
	p.await("fill "+label, func() (err error) {
		typed, err = evaluate[bool](p.ctx, `(() => {
			const e = `+element+`, value = `+quote(value)+`;
			__kit.point(e);
			if (__kit.typed(e)) return true;
			__kit.set(e, value);
			return false;
		})()`)
		return err
	})
	p.fields++
	if typed && value == "" {
		p.must(chromedp.Do(p.ctx, chromedp.KeyEvent("\b")))
	} else if typed {
		p.must(call(p.ctx, input.InsertText, input.InsertTextParams{Text: value}))
	}
}

// press types keys into what has the focus.
func (p *person) press(keys string) {
	p.t.Helper()
	p.must(chromedp.Do(p.ctx, chromedp.KeyEvent(keys)))
}

// focused waits until the keyboard is at an element whose name begins so.
func (p *person) focused(name string) {
	p.t.Helper()
	p.await("the focus is at "+name, func() error {
		at, err := evaluate[string](p.ctx, `__kit.nameOf(document.activeElement)`)
		if err == nil && !strings.HasPrefix(at, name) {
			err = fmt.Errorf("it is at %.100s", at)
		}
		return err
	})
}

// see waits until the page shows a text.
func (p *person) see(text string) {
	p.t.Helper()
	p.await("see "+text, func() error {
		if shown := p.text(); !strings.Contains(shown, text) {
			return fmt.Errorf("the page %s shows: %.1500s", p.address(), shown)
		}
		return nil
	})
}

// seeLater reloads the page until it shows a text that the service finds out in the background.
func (p *person) seeLater(text string) {
	p.t.Helper()
	p.await("see later "+text, func() error {
		if strings.Contains(p.text(), text) {
			return nil
		}
		p.must(chromedp.Do(p.ctx, chromedp.Reload()))
		if shown := p.text(); !strings.Contains(shown, text) {
			return fmt.Errorf("the page %s shows: %.1500s", p.address(), shown)
		}
		return nil
	})
}

// lacks fails if the page shows a text.
func (p *person) lacks(text string) {
	p.t.Helper()
	if shown := p.text(); strings.Contains(shown, text) {
		p.t.Fatalf("the page %s shows %q: %.1500s", p.address(), text, shown)
	}
}

// answered fails if the last page had another status.
func (p *person) answered(status int64) {
	p.t.Helper()
	if got := p.status.get(); got != status {
		p.t.Fatalf("the page %s answered %d, want %d", p.address(), got, status)
	}
}

// text is what the page shows, "" while there is none.
func (p *person) text() string {
	text, err := evaluate[string](p.ctx, `__kit.text()`)
	if err != nil {
		return ""
	}
	return text
}

// address is the path of the page, with its query.
func (p *person) address() string {
	address, err := chromedp.Run(p.ctx, chromedp.Location())
	p.must(err)
	return strings.TrimPrefix(address, p.base)
}

// await repeats what fails until it succeeds.
func (p *person) await(what string, try func() error) {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			p.shoot("failed")
			p.t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}

// checkFaults fails for what the pages complained of so far.
func (p *person) checkFaults() {
	p.t.Helper()
	for _, fault := range p.faults.take() {
		p.t.Errorf("the page complains: %s", fault)
	}
}

// find is an expression of the element with a name.
func find(kind, name string, inside ...string) string {
	return fmt.Sprintf("__kit.find(%s, %s, %s)", quote(kind), quote(name), quote(strings.Join(inside, " ")))
}

// quote writes a text as one of JavaScript.
func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

// call makes a call of the browser's protocol whose result does not matter.
func call[P, R any](ctx context.Context, command cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(ctx, command, params)
	return err
}

// evaluate returns the value of an expression in the page, and waits if it is a promise.
func evaluate[T any](ctx context.Context, expression string) (T, error) {
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// faults is what pages complain of, in order.
type faults struct {
	sync.Mutex
	list []string
}

func (f *faults) add(fault string) {
	f.Lock()
	defer f.Unlock()
	f.list = append(f.list, fault)
}

// take returns what was added since the last call.
func (f *faults) take() []string {
	f.Lock()
	defer f.Unlock()
	list := f.list
	f.list = nil
	return list
}

// statuses holds the status of the last document.
type statuses struct {
	sync.Mutex
	last int64
}

func (s *statuses) set(status int64) {
	s.Lock()
	defer s.Unlock()
	s.last = status
}

func (s *statuses) get() int64 {
	s.Lock()
	defer s.Unlock()
	return s.last
}

// required is the value of ANNALS_TEST_BROWSER with which a browser or axe that is missing fails the tests.
const required = "required"

// chromium is the browser of this test process. All windows are of one process, so that it starts once.
var chromium struct {
	sync.Once
	ctx context.Context
	// cancel ends it, nil if it was not started.
	cancel func() error
	// missing names what is not installed, "" if all is.
	missing string
	axe     string
}

// axeFile is where make browser installs axe-core.
var axeFile = filepath.Join("..", "..", "..", "bin", "browser", "node_modules", "axe-core", "axe.min.js")

// program finds the browser, "" if there is none.
func program() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// startChromium starts the browser once. Its data is removed when the tests end.
func startChromium() {
	path := program()
	axe, err := os.ReadFile(axeFile)
	switch {
	case path == "":
		chromium.missing = "no Chromium is installed here"
		return
	case err != nil:
		chromium.missing = "axe-core is not installed here (make browser does it): " + err.Error()
		return
	}
	chromium.axe = string(axe)
	// Chromium leaves empty folders in the one for temporary files.
	temporary, err := os.MkdirTemp("", "annals-browser-")
	if err != nil {
		chromium.missing = "Chromium has no folder: " + err.Error()
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Env("TMPDIR="+temporary),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en-US"),
	)
	ctx, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endBrowser := chromedp.NewContext(ctx)
	chromium.ctx, chromium.cancel = ctx, func() error {
		endBrowser()
		endAllocator()
		return os.RemoveAll(temporary)
	}
	if err := chromedp.Do(ctx); err != nil {
		chromium.missing = "Chromium does not start: " + err.Error()
	}
}

// needBrowser skips a test where there is no browser or no axe, unless they are required.
func needBrowser(t *testing.T) {
	t.Helper()
	chromium.Do(startChromium)
	switch {
	case chromium.missing == "":
	case os.Getenv("ANNALS_TEST_BROWSER") == required:
		t.Fatal(chromium.missing)
	default:
		t.Skip("the console is not walked with a browser: ", chromium.missing)
	}
}

// stopChromium ends the browser, if it was started.
func stopChromium() error {
	if chromium.cancel != nil {
		return chromium.cancel()
	}
	return nil
}
