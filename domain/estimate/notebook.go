package estimate

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"github.com/annals-project/annals/domain/rawjson"
)

// notebook is a notebook of Jupyter; that of format 3 has its cells in sheets.
type notebook struct {
	Cells      []notebookCell
	Worksheets []struct{ Cells []notebookCell }
	Metadata   struct {
		Title   string
		Authors []struct{ Name string }
	}
}

// notebookCell is a text, or code with what it printed.
type notebookCell struct {
	Kind    string          `json:"cell_type"`
	Source  json.RawMessage `json:"source"`
	Input   json.RawMessage `json:"input"`
	Level   int             `json:"level"`
	Outputs []struct {
		Text   json.RawMessage            `json:"text"`
		Data   map[string]json.RawMessage `json:"data"`
		Ename  string                     `json:"ename"`
		Evalue string                     `json:"evalue"`
	} `json:"outputs"`
}

// isNotebook reports whether a file is a notebook, by its name: JSON of the same shape may be anything.
func isNotebook(path string) bool { return extension(path) == ".ipynb" }

// notebookDocument writes the cells of a notebook as Markdown, with code and what it printed in fences, and cuts that.
func (c *cut) notebookDocument() (document, error) {
	if err := c.nesting(Documentation, c.text); err != nil {
		return document{}, err
	}
	var n notebook
	if err := json.NewDecoder(c.reader(strings.NewReader(c.text))).Decode(&n); err != nil && !isTypeError(err) {
		return document{}, unparseable(Documentation, "%v", err)
	}
	for _, sheet := range n.Worksheets {
		n.Cells = append(n.Cells, sheet.Cells...)
	}
	var b strings.Builder
	for _, cell := range n.Cells {
		source := joined(cell.Source)
		if source == "" {
			source = joined(cell.Input)
		}
		if c.over(len(source)) {
			return document{}, c.ended
		}
		switch cell.Kind {
		case "code":
			fence(&b, source)
			c.outputs(&b, cell)
		case "heading":
			b.WriteString(strings.Repeat("#", max(1, min(cell.Level, 6))) + " " + source + "\n\n")
		default:
			if strings.TrimSpace(source) != "" {
				b.WriteString(strings.Trim(source, "\n") + "\n\n")
			}
		}
	}
	m := &markdown{}
	d := document{title: fitName(n.Metadata.Title, 200), sections: c.lineSections(b.String(), m.begins)}
	if len(n.Metadata.Authors) == 1 {
		d.author = n.Metadata.Authors[0].Name
	}
	return d, nil
}

// outputs writes what a cell printed. Of a picture there is only that it was left out.
func (c *cut) outputs(b *strings.Builder, of notebookCell) {
	for _, out := range of.Outputs {
		text := joined(out.Text)
		if out.Ename != "" {
			text += out.Ename + ": " + out.Evalue
		}
		isPicture := false
		for kind := range out.Data {
			isPicture = isPicture || !strings.HasPrefix(kind, "text/") && kind != "application/json"
		}
		plain := joined(out.Data["text/plain"])
		switch {
		case isPicture:
			c.remarks.add(NotText, "an output")
		case out.Data["text/markdown"] != nil:
			text += joined(out.Data["text/markdown"])
		case plain != "" && !strings.HasPrefix(plain, "<IPython."):
			text += plain
		case out.Data["text/html"] != nil:
			text += strings.TrimSpace(c.htmlText(joined(out.Data["text/html"])))
		case out.Data["text/latex"] != nil:
			text += joined(out.Data["text/latex"])
		case out.Data["application/json"] != nil:
			text += string(out.Data["application/json"])
		default:
			text += plain
		}
		fence(b, onTerminal(text))
	}
}

// colors are the sequences by which a terminal changes colors and moves.
var colors = regexp.MustCompile(`\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Za-z0-9])`)

// onTerminal returns what a terminal shows at last of what was printed: without colors, and of a line that was printed
// over itself, such as a bar of progress, the last state.
func onTerminal(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if !strings.ContainsAny(text, "\x1b\r") {
		return text
	}
	lines := strings.Split(colors.ReplaceAllString(text, ""), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
	}
	return strings.Join(lines, "\n")
}

// joined returns a text that may be written as a list of its lines.
func joined(value json.RawMessage) string {
	if len(value) > 0 && value[0] == '"' {
		text, _ := rawjson.Text(value)
		return text
	}
	var b strings.Builder
	if len(value) > 0 && value[0] == '[' {
		for _, line := range rawjson.Elements(value) {
			if line[0] == '"' {
				text, _ := rawjson.Text(line)
				b.WriteString(text)
			}
		}
	}
	return b.String()
}

// fence writes a text as a block of code, between marks that it does not have.
func fence(b *strings.Builder, text string) {
	if text = strings.Trim(text, "\n"); strings.TrimSpace(text) == "" {
		return
	}
	mark := "```"
	for strings.Contains(text, mark) && len(mark) < 64 {
		mark += "`"
	}
	b.WriteString(mark + "\n" + text + "\n" + mark + "\n\n")
}

// isTypeError reports whether JSON has a value of another type in some place: all others are read.
func isTypeError(err error) bool {
	_, is := errors.AsType[*json.UnmarshalTypeError](err)
	return is
}
