package recall

import (
	"github.com/annals-project/annals/domain/rawjson"
)

// conversationNames are the top-level names of metadata that say which conversation a text is of. The first one that is
// there counts.
var conversationNames = []string{"conversation", "thread", "session"}

// ConversationOf returns the key of the conversation that metadata name, 0 for none. It is a hash of a text or a
// number, the same in each process.
func ConversationOf(metadata []byte) uint64 {
	if len(metadata) <= len(`{}`) {
		return 0
	}
	members, ok := rawjson.Members(metadata, conversationNames...)
	if !ok {
		return 0
	}
	for _, name := range conversationNames {
		value, is := members[name]
		if !is {
			continue
		}
		switch rawjson.KindOf(value) {
		case rawjson.String:
			if text, ok := rawjson.Text(value); ok && text != "" {
				return hashOf([]string{text})
			}
		case rawjson.Number:
			return hashOf([]string{string(value)})
		default:
		}
	}
	return 0
}

// MostSpeakers is how many authors may write in the hour around a text that names no conversation, for it to be of one
// with the texts next to it: where more write, each writes texts of their own.
const MostSpeakers = 4
