package audit

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// categories are those of the streams whose events have leaves. A blob has none: the event that refers to it has its
// hash.
var categories = []string{
	stream.Registry, stream.Organization, stream.Person, stream.Address, stream.Offer, stream.Project, stream.Identity,
	stream.Bulk, stream.Audiences, stream.Usage, stream.DataPoint, stream.Memory, stream.Ingestion, stream.Deletion,
	stream.Erasure, stream.Records, stream.Audit, stream.Reads, stream.Visits, stream.Pipeline,
}

// HasLeaf reports whether an event has a leaf. Those of the store and of other programs have none.
func HasLeaf(r eventstore.Recorded) bool {
	return !r.System() && slices.Contains(categories, stream.Category(r.Stream))
}

// leaf is a leaf that gets its place in a tree.
type leaf struct {
	position     int64
	organization uuid.UUID
	// at is the time of the event in microseconds, 0 for an event of category audit: that alone is no reason for a
	// checkpoint.
	at     int64
	record audit.Record
}

// leafSize is what a packed leaf takes.
const leafSize = 8 + 16 + 8 + len(audit.Record{})

func (l leaf) pack(to []byte) []byte {
	to = append(binary.BigEndian.AppendUint64(to, uint64(l.position)), l.organization[:]...)
	return append(binary.BigEndian.AppendUint64(to, uint64(l.at)), l.record[:]...)
}

func pack(leaves []leaf) []byte {
	packed := make([]byte, 0, len(leaves)*leafSize)
	for _, l := range leaves {
		packed = l.pack(packed)
	}
	return packed
}

// unpack adds the packed leaves that are not after a position.
func unpack(to []leaf, packed []byte, before int64) []leaf {
	for ; len(packed) >= leafSize; packed = packed[leafSize:] {
		l := leaf{
			position: int64(binary.BigEndian.Uint64(packed)), organization: uuid.UUID(packed[8:24]),
			at: int64(binary.BigEndian.Uint64(packed[24:])), record: audit.Record(packed[32:leafSize]),
		}
		if l.position <= before {
			to = append(to, l)
		}
	}
	return to
}

// inOrder sorts leaves by position. What is there twice is the same: the event and its kept record.
func inOrder(leaves []leaf) []leaf {
	slices.SortStableFunc(leaves, func(a, b leaf) int { return cmp.Compare(a.position, b.position) })
	return slices.CompactFunc(leaves, func(a, b leaf) bool { return a.position == b.position })
}

// leafOf returns the leaf of an event of an organization. An event of another program in a stream of ours may have no
// salt or no time: its record is that of one that is passed over.
func leafOf(f eventstore.DecodedEvent, organization uuid.UUID) (leaf, error) {
	f.Event = eventstore.PassedOver{}
	kept, err := f.Kept(organization)
	if err != nil {
		return leaf{}, err
	}
	l := leaf{position: int64(f.Position), organization: organization, record: kept.Record}
	if stream.Category(f.Stream) != stream.Audit {
		l.at = max(timeOf(f).UnixMicro(), 1)
	}
	return l, nil
}

// timeOf returns the time in the metadata of an event, zero if there is none that can be read.
func timeOf(f eventstore.DecodedEvent) time.Time {
	if !f.Details.At.IsZero() {
		return f.Details.At
	}
	var stored struct {
		At time.Time `json:"at"`
	}
	if json.Unmarshal(f.Meta, &stored) != nil {
		return time.Time{}
	}
	return stored.At
}

// mayKeep reports whether an event is of a stream that keeps records.
func mayKeep(r eventstore.Recorded) bool {
	category := stream.Category(r.Stream)
	return !r.System() && (category == stream.Records || category == stream.Deletion)
}

// keeps returns how many records an event keeps.
func keeps(f eventstore.DecodedEvent) int {
	switch e := f.Event.(type) {
	case *audit.RecordsKept:
		return len(e.Records)
	case *deletion.FactsKept:
		return len(e.Records) + len(e.MemoryRecords)
	}
	return 0
}

// keptIn adds the leaves that an event keeps, of events after a position and not after another. Their own times are not
// known, so that of the event stands for them.
func keptIn(to []leaf, f eventstore.DecodedEvent, before eventstore.Position) []leaf {
	add := func(organization uuid.UUID, list audit.KeptList) {
		for _, k := range list {
			if k.Position <= uint64(before) {
				to = append(to, leaf{int64(k.Position), organization, max(timeOf(f).UnixMicro(), 1), k.Record})
			}
		}
	}
	switch e := f.Event.(type) {
	case *audit.RecordsKept:
		add(e.OrganizationID, e.Records)
	case *deletion.FactsKept:
		add(e.OrganizationID, e.Records)
		add(e.OrganizationID, e.MemoryRecords)
	}
	return to
}
