package storage

import (
	"testing"
	"time"
)

// Events older than the maximum age are not returned.
func TestRead_MaxAge(t *testing.T) {
	n := open(t, memoryConfig())
	c := clientOf(t, n)
	c.append("s", none, newEvents(2)...)
	c.append("$$s", none, metadataEvent(`{"$maxAge":60}`))
	for age, want := range map[time.Duration]int{0: 2, 59 * time.Second: 2, 2 * time.Minute: 0} {
		v, err := n.views.acquire()
		if err != nil {
			t.Fatal(err)
		}
		state, err := v.state("s")
		if err != nil {
			t.Fatal(err)
		}
		p, err := v.stream(state, 0, false, 10, time.Now().Add(age))
		if err != nil || len(p.Events) != want || !p.End {
			t.Errorf("%v later: %d events, %v", age, len(p.Events), err)
		}
		if err := v.release(); err != nil {
			t.Fatal(err)
		}
	}
}
