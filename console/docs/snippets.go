package docs

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// Snippet is what a client of MCP is configured with: its name and a command or a part of a file.
type Snippet struct{ Client, Text string }

// snippetsFile has a section for each client, whose first block is its snippet with the values of snippetValues.
const snippetsFile = "docs/mcp-clients.md"

// The values of the page that stand for those of a deployment and of a key.
const (
	shownConsole = "http://127.0.0.1:8081"
	shownKey     = "svc_sk_…"
)

var snippetOf = regexp.MustCompile("(?s)\n## ([^\n]+)\n.*?```[a-z]+\n(.*?)\n```")

// Snippets are the snippets of the page about clients, with the address of a console and a key filled in.
func Snippets(files fs.FS, console, key string) ([]Snippet, error) {
	text, err := fs.ReadFile(files, snippetsFile)
	if err != nil {
		return nil, fmt.Errorf("read the page about clients: %w", err)
	}
	values := strings.NewReplacer(shownConsole, console, shownKey, key)
	var list []Snippet
	for _, found := range snippetOf.FindAllStringSubmatch(string(text), -1) {
		list = append(list, Snippet{found[1], values.Replace(found[2])})
	}
	return list, nil
}
