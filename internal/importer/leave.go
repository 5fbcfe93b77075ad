package importer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"

	client "github.com/annals-project/annals/client"
)

// LeftOut is a data point that the service refused for itself. No further run changes that.
type LeftOut struct {
	ID string `json:"id"`
	// Reason is that of the service, for people.
	Reason string `json:"reason"`
	// Deleted is true for one that was deleted before: it stays out.
	Deleted bool `json:"deleted,omitempty"`
	// Path is the file that it is from, Line its line in an input; "" and 0 for none.
	Path string `json:"path,omitempty"`
	Line int    `json:"line,omitempty"`
	// Item is its place in the batch.
	Item int `json:"-"`
}

// sentItems is what became of a batch.
type sentItems struct {
	// receipt is that of the items that were sent, nil if nothing was left of the batch.
	receipt *client.BatchReceipt
	left    []LeftOut
}

// unchanged counts the data points that the server had.
func (s sentItems) unchanged() (n int) {
	if s.receipt != nil {
		for _, item := range s.receipt.Items {
			if item.Unchanged != nil && *item.Unchanged {
				n++
			}
		}
	}
	return n
}

// sendItems sends a batch. An item that is refused for itself is left out, and the rest is sent under a key of its own:
// the key of a batch belongs to all of its items.
func sendItems(ctx context.Context, to Sender, items []json.RawMessage, key string) (out sentItems, err error) {
	places := make([]int, len(items)) // of the items that are still sent
	for i := range places {
		places[i] = i
	}
	for first := true; len(places) > 0; first = false {
		batch := client.Batch{IdempotencyKey: key}
		for _, i := range places {
			batch.RawItems = append(batch.RawItems, items[i])
		}
		if !first {
			batch.IdempotencyKey = restKey(key, batch.RawItems)
		}
		out.receipt, err = to.IngestBatch(ctx, batch)
		refused, is := errors.AsType[*client.APIError](err)
		if !is {
			break
		}
		out.receipt = nil
		left := refusedItems(refused, batch.RawItems)
		if len(left) == 0 {
			break
		}
		err = nil
		for n := range left {
			left[n].Item = places[left[n].Item]
		}
		out.left = append(out.left, left...)
		places = slices.DeleteFunc(places, func(i int) bool {
			return slices.ContainsFunc(left, func(l LeftOut) bool { return l.Item == i })
		})
	}
	slices.SortFunc(out.left, func(a, b LeftOut) int { return a.Item - b.Item })
	return out, err
}

// restKey is the key of what is left of a batch. It depends on that alone, so that a repeat is found.
func restKey(key string, items []json.RawMessage) string {
	h := sha256.New()
	for _, item := range items {
		_, _ = h.Write(item) // a hash takes everything
		_, _ = h.Write([]byte{'\n'})
	}
	return key + "-rest-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// ownCodes are the codes of refusals that are about one item, and not about the key or the project.
var ownCodes = []string{
	client.CodeDataPointDeleted, client.CodeAudienceUnknown, client.CodeInvalidRequest, client.CodeContentTooLarge,
}

// refusedItems returns the items that a refusal is about, none if it is about the batch. Those with the same unknown
// audience, and all deleted ones, are left out together.
func refusedItems(refused *client.APIError, items []json.RawMessage) (left []LeftOut) {
	if !slices.Contains(ownCodes, refused.Code) {
		return nil
	}
	var data struct {
		Item *int     `json:"item"`
		IDs  []string `json:"ids"`
	}
	if refused.Data != nil && json.Unmarshal(refused.Data, &data) != nil {
		return nil
	}
	at := -1
	if data.Item != nil {
		at = *data.Item
	} else if m := namedItem.FindStringSubmatch(refused.Message); m != nil {
		at, _ = strconv.Atoi(m[1]) // digits
	}
	isDeleted := refused.Code == client.CodeDataPointDeleted
	names := make([]itemName, len(items))
	for i, item := range items {
		names[i] = nameOf(item)
	}
	for i, n := range names {
		is := i == at || isDeleted && slices.Contains(data.IDs, n.id)
		if refused.Code == client.CodeAudienceUnknown && at >= 0 && at < len(items) {
			is = is || n.audience != "" && n.audience == names[at].audience
		}
		if is {
			left = append(left, LeftOut{ID: n.id, Reason: reasonOf(refused, n), Deleted: isDeleted, Item: i})
		}
	}
	return left
}

func reasonOf(refused *client.APIError, of itemName) string {
	switch refused.Code {
	case client.CodeDataPointDeleted:
		return "was deleted before"
	case client.CodeAudienceUnknown:
		return "the project has no audience " + strconv.Quote(of.audience)
	default:
		return itemPlace.ReplaceAllString(refused.Message, "")
	}
}

// itemPlace is the place in a batch, which means nothing to the reader of a file.
var itemPlace = regexp.MustCompile(`^items\[\d+\][.:]? ?`)

// itemName is what names an item of a batch.
type itemName struct{ id, audience string }

func nameOf(item json.RawMessage) itemName {
	var p struct{ ID, Content, Audience string }
	if json.Unmarshal(item, &p) != nil {
		return itemName{}
	}
	if p.ID == "" {
		p.ID = DefaultID(p.Content)
	}
	return itemName{p.ID, p.Audience}
}
