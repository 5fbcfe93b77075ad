package eventstoretest_test

import (
	"testing"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

func TestMemory(t *testing.T) {
	eventstoretest.Run(t, func(*testing.T) eventstore.Store { return eventstoretest.NewMemory() })
}

func TestMemory_Scavenge(t *testing.T) {
	store := eventstoretest.NewMemory()
	eventstoretest.RunScavenge(t, store, store.Scavenge)
}
