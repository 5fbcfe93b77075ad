package bleve

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

func TestKeys(t *testing.T) {
	for _, at := range []partition{shared(uuid.New()), own(uuid.New())} {
		for _, k := range []recallindex.Key{
			{DataPoint: uuid.New(), Revision: 1},
			{DataPoint: uuid.New(), Revision: 123456, N: 4321},
			{DataPoint: uuid.New(), Revision: 2, Memory: uuid.New()},
			{},
		} {
			got, err := at.key([]byte(at.identifier(k)))
			if err != nil || got != k {
				t.Errorf("%+v is read as %+v, %v", k, got, err)
			}
		}
		point := at.prefix + encode(uuid.New())
		for _, id := range []string{
			"", fillerID, point, point + "p", point + "p1", point + "p1:", point + "p1:x",
			point + "px:1", point + "z1:1", point + "m1:1", "!" + point[1:] + "p1:1", point[1:] + "p1:1",
		} {
			if k, err := at.key([]byte(id)); err == nil {
				t.Errorf("%q is read as %+v", id, k)
			}
		}
	}
}
