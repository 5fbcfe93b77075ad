package estimate

// The bounds of nesting.
const (
	MaxJSONDepth = maxJSONDepth
	MaxNesting   = maxNesting
)

// Layouts are the forms of times; ParseTime reads them.
var (
	Layouts   = layouts
	ParseTime = parseTime
)

// SetWindow sets the size of the rows that are made at once.
func (p *Plan) SetWindow(bytes int64) { p.window = bytes }

// Use counts bytes that were kept and made before.
func (p *Plan) Use(kept, made int64) {
	p.kept += kept
	p.made += made
}
