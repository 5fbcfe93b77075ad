package rawjson

// Each calls yield for each member of an object, with its name and its value as part of the text,
// in the order of the text, until it returns false. A repeated name is passed each time. ok is
// false if the value is not an object.
func Each(value []byte, yield func(name string, member []byte) bool) (ok bool) {
	if KindOf(value) != Object {
		return false
	}
	i := skipSpace(value, 0) + 1
	for {
		i = skipSpace(value, i)
		switch value[i] {
		case '}':
			return true
		case ',':
			i++
			continue
		}
		end := skipString(value, i)
		name, _ := Text(value[i:end])
		i = skipSpace(value, end) + 1 // the colon
		i = skipSpace(value, i)
		end = skipValue(value, i)
		if !yield(name, value[i:end:end]) {
			return true
		}
		i = end
	}
}
