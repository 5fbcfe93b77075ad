package estimate

// The depth to which text nests that is read level by level. Other forms of nesting, such as quotations in
// quotations, lists in lists and elements of HTML, are read without a level of their own.
const (
	// maxJSONDepth is that of arrays and objects; a text that is deeper is skipped.
	maxJSONDepth = 1000
	// maxNesting is that of multiparts and attached messages; what is deeper is not read.
	maxNesting = 16
)

// nesting returns an error if a JSON text nests too deep. Whether it is JSON is for a parser to tell.
func (c *cut) nesting(kind Kind, text string) error {
	depth, quoted, escaped := 0, false, false
	for i := range len(text) {
		if i%checkBytes == 0 && c.over(min(checkBytes, len(text)-i)) {
			return c.ended
		}
		switch b := text[i]; {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = b == '\\', b != '"'
		case b == '"':
			quoted = true
		case b == '[' || b == '{':
			if depth++; depth > maxJSONDepth {
				return unparseable(kind, "it nests more than %d levels deep", maxJSONDepth)
			}
		case b == ']' || b == '}':
			depth--
		}
	}
	return nil
}
