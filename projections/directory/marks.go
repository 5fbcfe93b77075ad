package directory

import (
	"strconv"

	"github.com/google/uuid"
)

// maxMarked is how many traits of a record are marked. One that has more is looked through instead: what it costs to find the
// others does not depend on how many traits one may have.
const maxMarked = 1000

// keyMark is the mark of every identity of a project that has a trait.
func keyMark(project uuid.UUID, key string) uuid.UUID {
	return uuid.NewSHA1(project, []byte("key:"+key))
}

// valueMark is the mark of every identity of a project whose trait has a value.
func valueMark(project uuid.UUID, key, value string) uuid.UUID {
	return uuid.NewSHA1(project, []byte("value:"+strconv.Itoa(len(key))+":"+key+value))
}

// marksOf are the marks of traits, none for those that are too many.
func marksOf(project uuid.UUID, values map[string]string) ids {
	marks := ids{}
	if len(values) > maxMarked {
		return marks
	}
	for key, value := range values {
		marks.add(keyMark(project, key))
		marks.add(valueMark(project, key, value))
	}
	return marks
}
