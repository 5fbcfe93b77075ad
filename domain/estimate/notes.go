package estimate

import (
	"cmp"
	"strconv"
)

// cutNotes cuts plain text: one data point, or parts of a long text.
func cutNotes(c *cut) error {
	label := cmp.Or(title(c.text), c.base)
	at := dateInName(c.path, c.zone)
	n := 0
	return parts(c.text, func(part string) error {
		n++
		p := Point{ID: c.id(), Content: part, Label: label, At: at, Metadata: c.metadata()}
		if n > 1 {
			p.ID = c.id("part-" + strconv.Itoa(n))
			p.Label = label + " (" + strconv.Itoa(n) + ")"
		}
		return c.emit(p)
	})
}
