package estimate

import "strings"

// maxTag is the longest tag whose attributes are read: the tokenizer keeps a multiple of them.
const maxTag = 64 << 10

// shortTags returns HTML without the attributes of long tags, such as that of an image with its data.
func (c *cut) shortTags(text string) string {
	var b strings.Builder
	kept, end := 0, 0 // what is before kept is in b; end is the first > that is not before at
	for at := 0; at < len(text); {
		next := strings.IndexByte(text[at:], '<')
		if next < 0 || c.over(next+1) {
			break
		}
		at += next + 1
		if at > end {
			end = len(text)
			if n := strings.IndexByte(text[at:], '>'); n >= 0 {
				end = at + n
			}
		}
		if name := tagName(text[at:end]); end-at > maxTag && name > 0 {
			if c.over(end - at) {
				break
			}
			b.WriteString(text[kept : at+name])
			kept, at = end, end
		}
	}
	if kept == 0 {
		return text
	}
	b.WriteString(text[kept:])
	return b.String()
}

// longestName is how much of a tag is looked at for its name.
const longestName = 100

// tagName returns how long the name at the beginning of a tag is, with its slash, 0 if there is none.
func tagName(tag string) int {
	for i, r := range tag[:min(len(tag), longestName)] {
		isLetter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i == 0 && r == '/' || i > 0 && r >= '0' && r <= '9'
		if !isLetter {
			return i
		}
	}
	return min(len(tag), longestName)
}
