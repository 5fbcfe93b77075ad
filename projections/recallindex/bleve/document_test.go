package bleve

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

func TestKeys(t *testing.T) {
	for _, k := range []recallindex.Key{
		{DataPoint: uuid.New(), Revision: 1},
		{DataPoint: uuid.New(), Revision: 123456, N: 4321},
		{DataPoint: uuid.New(), Revision: 2, Memory: uuid.New()},
		{},
	} {
		got, err := key([]byte(identifier(k)))
		if err != nil || got != k {
			t.Errorf("%+v is read as %+v, %v", k, got, err)
		}
	}
	good := identifier(recallindex.Key{DataPoint: uuid.New(), Revision: 1})
	for _, id := range []string{"", fillerID, "::", ":1:1", good[1:], "!" + good[1:], good[:len(good)-1], good + "x", good[:idLength] + "1:1", good[:idLength] + ":x:1"} {
		if k, err := key([]byte(id)); err == nil {
			t.Errorf("%q is read as %+v", id, k)
		}
	}
}
