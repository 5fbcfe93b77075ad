package load

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
)

// statusCallers is how many calls run at once.
const statusCallers = 8

// Unfinished reads the status of each of the sends, by project, and counts those that are not
// completed.
func Unfinished(ctx context.Context, to []*client.Client, sent [][]string) (asked, unfinished int, err error) {
	type send struct {
		to *client.Client
		id string
	}
	var all []send
	for i, ids := range sent {
		for _, id := range ids {
			all = append(all, send{to[i], id})
		}
	}
	var next, open atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range statusCallers {
		group.Go(func() error {
			for n := next.Add(1) - 1; n < int64(len(all)); n = next.Add(1) - 1 {
				status, err := all[n].to.GetIngestion(ctx, all[n].id)
				if err != nil {
					return fmt.Errorf("read status of send %s: %w", all[n].id, err)
				}
				if status.Status != "completed" {
					open.Add(1)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	return len(all), int(open.Load()), err
}
