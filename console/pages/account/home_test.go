package account_test

import "testing/fstest"

var homeTemplate = fstest.MapFS{
	"home.html": {Data: []byte(`{{define "title"}}Home{{end}}{{define "main"}}<h1>Home</h1>{{end}}`)},
}
