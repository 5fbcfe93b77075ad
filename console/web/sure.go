package web

import (
	"cmp"
	"maps"
	"net/url"
)

// confirmation is the page that asks before a change. Fields are those of the form.
type confirmation struct {
	Question string              `json:"question"`
	Fields   map[string][]string `json:"-"`
	Back     string              `json:"-"`
}

// AskFirst asks before a change, with a question of words.go, unless the form has that the person is sure: scripts
// have asked then, or this page. Its error ends the request.
func (r *Request) AskFirst(question string) error {
	if r.Field("sure") == "yes" {
		return nil
	}
	page := confirmation{Question: words.ask[question], Fields: maps.Clone(r.PostForm), Back: "/"}
	delete(page.Fields, formField)
	if from, err := url.Parse(r.Referer()); err == nil && from.Path != "" {
		page.Back = (&url.URL{Path: from.Path, RawQuery: from.RawQuery}).String()
	}
	r.area = r.site.areas[0]
	return cmp.Or(r.write("confirm.html", page), errAnswered)
}
