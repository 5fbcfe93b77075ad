package hostiletest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/annals-project/annals/domain/estimate"
)

// The bodies repeat by their seed, are of both lists and every kind, and have what they are said to have.
func TestEstimates(t *testing.T) {
	made := func() (lists, points, kinds map[string]int, wrong int) {
		rng := rand.New(rand.NewPCG(1, 0))
		e := NewEstimates(1, rng, "tea %s", func() map[string]any { return map[string]any{"id": "a"} })
		lists, points, kinds = map[string]int{}, map[string]int{}, map[string]int{}
		for range 100 {
			body, right := e.Next()
			points[fmt.Sprint(body["points"])]++
			if !right {
				wrong++
				continue
			}
			for _, list := range []string{"files", "items"} {
				entries, _ := body[list].([]any)
				lists[list] += len(entries)
				for _, entry := range entries {
					kinds[fmt.Sprint(entry.(map[string]any)["kind"])]++
					if text := fmt.Sprint(entry); canaries.FindString(text) == "" {
						t.Errorf("no canary in %.200q", text)
					}
				}
			}
		}
		return lists, points, kinds, wrong
	}
	lists, points, kinds, wrong := made()
	listsAgain, pointsAgain, kindsAgain, wrongAgain := made()
	if !maps.Equal(lists, listsAgain) || !maps.Equal(points, pointsAgain) || !maps.Equal(kinds, kindsAgain) ||
		wrong != wrongAgain {
		t.Error("the same seed makes other bodies")
	}
	if lists["files"] == 0 || lists["items"] == 0 || points["summary"]*points["full"]*points["none"] == 0 || wrong != 33 {
		t.Errorf("made %v, %v, %d wrong", lists, points, wrong)
	}
	for _, kind := range estimate.KindNames() {
		if kinds[kind] == 0 {
			t.Errorf("no file of kind %s among %v", kind, slices.Sorted(maps.Keys(kinds)))
		}
	}
	const canary = "ze0123456789abcdef"
	if StrangeCanary("{}", nil, canary) == "" || StrangeCanary("{}", http.Header{"A": {canary}}, "") == "" ||
		StrangeCanary(canary, nil, canary) != "" {
		t.Error("a canary is taken for a strange one, or the reverse")
	}
}
