package audit_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
)

func TestKeptList_Text(t *testing.T) {
	list := audit.KeptList{
		{uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff"), 0x0102, audit.Record{0: 7, 31: 9}},
		{uuid.New(), 1<<64 - 1, audit.Record{255}},
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.Trim(string(text), `"`))
	first := "00112233445566778899aabbccddeeff" + "0000000000000102" + "07" + strings.Repeat("00", 30) + "09"
	if got := hex.EncodeToString(raw); err != nil || len(raw) != 112 || !strings.HasPrefix(got, first) {
		t.Errorf("%s, want it to begin with %s, %v", got, first, err)
	}
	var again audit.KeptList
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list, again); diff != "" {
		t.Error(diff)
	}
}

func TestKeptList_NoList(t *testing.T) {
	for _, text := range []string{`"A"`, `"AAAA"`, `"!"`, `7`, `["AAAA"]`} {
		list := audit.KeptList{}
		if err := json.Unmarshal([]byte(text), &list); err == nil {
			t.Errorf("%s is the list %v", text, list)
		}
	}
}
