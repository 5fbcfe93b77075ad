package comprehend_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
)

// monday is 12 May 2025, the day of the design's example.
var monday = time.Date(2025, 5, 12, 9, 30, 0, 0, time.UTC)

var dataPoint = uuid.MustParse("3f0c7d1e-7a53-4c2e-9d53-0a1b2c3d4e5f")

func extract(content, author string) []memory.Memory {
	return comprehend.Extract(comprehend.Input{
		DataPoint: dataPoint, Revision: 1, Content: content, Author: author,
		OccurredAt: monday,
	})
}

// The examples of the design, word for word.
func TestExtract_DesignExamples(t *testing.T) {
	for _, tc := range []struct{ kind, content, author, want string }{
		{memory.Observation, "Ana moved the launch to 3 June 2025", "Bo", "Ana moved the launch to 3 June 2025"},
		{memory.Claim, "Ana's favourite editor is Helix", "Bo", "Ana's favourite editor is Helix"},
		{memory.Rule, "Never deploy on Fridays", "Bo", "Never deploy on Fridays"},
		{memory.Membership, "Ana is on the platform team", "Bo", "Ana is on the platform team"},
		{memory.Identity, "Ana Ruiz goes by aruiz", "Bo", "Ana Ruiz goes by aruiz"},
		{memory.Mention, "Have you heard of Helix?", "Ana", "Ana mentions Helix"},
		{memory.TemporalAnchor, "We meet next Tuesday.", "Ana", `"next Tuesday", said on 12 May 2025, is 13 May 2025`},
	} {
		got := extract(tc.content, tc.author)
		if !slices.ContainsFunc(got, func(m memory.Memory) bool { return m.Kind == tc.kind && m.Content == tc.want }) {
			t.Errorf("%q gives no %s %q: %+v", tc.content, tc.kind, tc.want, got)
		}
	}
}
