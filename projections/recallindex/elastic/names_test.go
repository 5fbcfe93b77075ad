package elastic

import "testing"

// An index of a format before is removed, one of a newer format or of another index is left alone.
func TestOptions_Names(t *testing.T) {
	o := Options{Name: "annals"}
	pattern, err := o.indexPattern()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		o.indexName(7): 7, "annals-v1-000012": 12, "annals-v5-1000000": 1_000_000,
		"annals-v6-000001": 0, "annals-v03x-000001": 0, "other-v5-000001": 0, "annals-other-v5-000001": 0, "annals-v5-next": 0,
	} {
		if number, ok := numberOf(pattern, name); number != want || ok != (want > 0) {
			t.Errorf("%s has the number %d, %t, want %d", name, number, ok, want)
		}
	}
	g := generation{id: "0c"}
	for alias, want := range map[string]bool{
		o.live(): true, o.readAlias(g): true, "annals-v1": true,
		o.next(): false, o.writeAlias(g): false, "annals": false, "other-v5": false,
	} {
		if got := o.isUsed(alias); got != want {
			t.Errorf("%s is used: %t", alias, got)
		}
	}
}
