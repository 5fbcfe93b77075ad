package estimate

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/annals-project/annals/domain/rawjson"
)

// maxExtended is the longest value that is looked at for a type.
const maxExtended = 4096

// isExtended reports whether an object is a value with its type, as the exports of MongoDB write it.
func isExtended(object json.RawMessage) bool {
	return len(object) <= maxExtended && bytes.HasPrefix(trimSpace(object[1:]), []byte(`"$`))
}

// extendedParts are names within such values: of a time, of bytes, of an expression.
var extendedParts = map[string]bool{"t": true, "base64": true, "pattern": true}

// extended returns what such an object stands for: {"$oid": "…"}, {"$date": …}, {"$numberLong": "…"} and the like.
func extended(object json.RawMessage) (text string, ok bool) {
	if !isExtended(object) {
		return "", false
	}
	for range 4 {
		var name string // of the member that has the value
		var value json.RawMessage
		members := 0
		for n, v := range rawjson.Each(object) {
			// A reference and a time of the log have more members, of which one is what people mean.
			if members++; members == 1 || n == "$id" || n == "t" {
				name, value = n, v
			}
		}
		if !strings.HasPrefix(name, "$") && !extendedParts[name] || len(value) == 0 {
			return "", false
		}
		if value[0] != '{' {
			return scalar(value), value[0] != '['
		}
		object = value
	}
	return "", false
}
