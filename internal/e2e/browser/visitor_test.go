package browser

import (
	"strings"

	"github.com/annals-project/annals/internal/webtest"
)

// visitor is somebody at the console: at a browser, or at one that runs no scripts. Both do what a walk asks.
type visitor interface {
	open(path string)
	link(name string, inside ...string)
	button(name string, inside ...string)
	fill(label, value string, inside ...string)
	tick(label string)
	attach(label, name, content string)
	// download returns what a link leads to.
	download(link string) string
	see(text string)
	seeLater(text string)
	lacks(text string)
	answered(status int64)
	grab(selector string) string
}

func (p *person) link(name string, inside ...string) {
	p.t.Helper()
	p.click("link", name, inside...)
}

func (p *person) button(name string, inside ...string) {
	p.t.Helper()
	p.click("button", name, inside...)
}

func (p *person) tick(label string) {
	p.t.Helper()
	p.click("field", label)
}

func (p *person) attach(label, name, content string) {
	p.t.Helper()
	p.await("attach a file to "+label, func() error {
		_, err := evaluate[bool](p.ctx, `(() => {
			const chosen = new DataTransfer();
			chosen.items.add(new File([`+quote(content)+`], `+quote(name)+`));
			`+find("field", label)+`.files = chosen.files;
			return true;
		})()`)
		return err
	})
	p.fields++
}

func (p *person) download(link string) (text string) {
	p.t.Helper()
	p.await("download "+link, func() (err error) {
		text, err = evaluate[string](p.ctx, `fetch(`+find("link", link)+`.href).then(answer => answer.text())`)
		return err
	})
	return text
}

// grab returns the text of the first element of a selector.
func (p *person) grab(selector string) (text string) {
	p.t.Helper()
	p.await("find "+selector, func() (err error) {
		text, err = evaluate[string](p.ctx, `document.querySelector(`+quote(selector)+`).textContent.trim()`)
		return err
	})
	return text
}

// plainReader is a visitor without scripts. What it fills is sent with the next button.
type plainReader struct {
	*webtest.Reader

	filled map[string]string
}

func newPlainReader(s *service) *plainReader {
	return &plainReader{webtest.NewReader(s.t, s.Console), map[string]string{}}
}

func (r *plainReader) open(path string) {
	r.Open(strings.TrimPrefix(path, r.Base))
}

func (r *plainReader) link(name string, inside ...string) { r.Follow(name, inside...) }

func (r *plainReader) button(name string, inside ...string) {
	r.Submit(name, r.filled, inside...)
	r.filled = map[string]string{}
}

func (r *plainReader) fill(label, value string, _ ...string) { r.filled[label] = value }
func (r *plainReader) tick(label string)                     { r.filled[label] = "yes" }

func (r *plainReader) attach(label, name, content string) { r.Attach(label, name, content) }

func (r *plainReader) download(link string) string {
	at := r.At
	text := r.Follow(link).Body
	r.At = at
	return text
}

func (r *plainReader) see(text string)       { r.See(text) }
func (r *plainReader) seeLater(text string)  { r.SeeLater(text) }
func (r *plainReader) answered(status int64) { r.Answered(int(status)) }

func (r *plainReader) lacks(text string) {
	if strings.Contains(r.At.Text(), text) {
		r.T.Errorf("the page %s shows %q", r.At.URL, text)
	}
}

func (r *plainReader) grab(selector string) string {
	found := r.At.Find(selector).First()
	if found.Length() == 0 {
		r.T.Fatalf("the page %s (%d) has no %s: %.500s", r.At.URL, r.At.Status, selector, r.At.Text())
	}
	return strings.TrimSpace(found.Text())
}
