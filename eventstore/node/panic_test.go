package node

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/annals-project/annals/internal/runtest"
)

// A panic of a read is the error of that call. A panic of the writer stops all writes, and Failed
// reports it. The process continues, and serves reads.
func TestNode_Panics(t *testing.T) {
	var broken atomic.Bool
	n := startNode(t, Config{manualScavenge: true, now: func() time.Time {
		if broken.Load() {
			panic("out of order")
		}
		return time.Now()
	}})
	ctx, c := runtest.Context(t), officialClient(t, n)
	appendOne := func() error {
		_, err := c.AppendToStream(ctx, "account-1", esdb.AppendToStreamOptions{},
			esdb.EventData{EventType: "opened", ContentType: esdb.ContentTypeJson, Data: []byte(`{}`)})
		return err
	}
	readOne := func() error {
		read, err := c.ReadStream(ctx, "account-1", esdb.ReadStreamOptions{}, 1)
		if err != nil {
			return err
		}
		defer read.Close()
		_, err = read.Recv()
		return err
	}
	if err := appendOne(); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if err := readOne(); err == nil {
		t.Error("the read has no error")
	}
	if n.Err() != nil {
		t.Errorf("a panic of a read stopped the node: %v", n.Err())
	}
	if err := appendOne(); err == nil {
		t.Error("the append has no error")
	}
	select {
	case <-n.Failed():
	case <-ctx.Done():
		t.Fatal("the node has not failed")
	}
	broken.Store(false)
	if err := appendOne(); err == nil {
		t.Error("a later append has no error")
	}
	if err := readOne(); err != nil {
		t.Errorf("a later read: %v", err)
	}
}
