package httpx

import (
	"bytes"
	html "html/template"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Home is the page at the root of an address: what the address is, with links and no data.
type Home struct {
	// Title names the address. Text is what it is for.
	Title, Text string
	Links       []Link
}

// Link is a link of a page. Its target is a path of the address, or another public address.
type Link struct{ Target, Text string }

var home = html.Must(html.New("home").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
</head>
<body>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
<ul>
{{range .Links}}<li><a href="{{.Target}}">{{.Text}}</a></li>
{{end}}</ul>
</body>
</html>
`))

func (page Home) html() ([]byte, error) {
	var body bytes.Buffer
	err := home.Execute(&body, page)
	return body.Bytes(), err
}

// homePolicy lets the page load nothing, run nothing, and be shown in no frame.
const homePolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// RegisterHome adds a page at / to a router.
func RegisterHome(e *echo.Echo, page Home) error {
	body, err := page.html()
	if err != nil {
		return err
	}
	e.Match([]string{http.MethodGet, http.MethodHead}, "/", func(c echo.Context) error {
		header := c.Response().Header()
		header.Set(echo.HeaderContentSecurityPolicy, homePolicy)
		header.Set(echo.HeaderReferrerPolicy, "no-referrer")
		return c.HTMLBlob(http.StatusOK, body)
	})
	return nil
}
