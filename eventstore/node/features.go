package node

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/node/wire"
)

// serverVersion is the release of EventStoreDB whose behaviour the node reproduces. Clients accept
// numbers only.
const serverVersion = "24.10.4"

// supported are the methods of Streams that the node serves, in lower case, as clients look for
// them.
var supported = []string{"append", "read", "delete", "tombstone", "batchappend"}

// features lists the methods that the node serves.
type features struct {
	serverfeatures.UnimplementedServerFeaturesServer
}

// GetSupportedMethods lists what the node serves.
func (features) GetSupportedMethods(context.Context, *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	all := &serverfeatures.SupportedMethods{EventStoreServerVersion: serverVersion}
	for _, method := range supported {
		all.Methods = append(all.Methods,
			&serverfeatures.SupportedMethod{MethodName: method, ServiceName: "event_store.client.streams.streams"})
	}
	return all, nil
}

// membership answers clients that discover a cluster: this node is the only member.
type membership struct {
	gossip.UnimplementedGossipServer
	instance uuid.UUID
	host     string
	port     uint32
}

func newMembership(addr string) (*membership, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address of the event store: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port of the event store: %w", err)
	}
	return &membership{instance: uuid.New(), host: host, port: uint32(number)}, nil
}

// Read lists the one member.
func (m *membership) Read(context.Context, *shared.Empty) (*gossip.ClusterInfo, error) {
	return &gossip.ClusterInfo{Members: []*gossip.MemberInfo{{
		InstanceId:   structuredID(m.instance),
		TimeStamp:    time.Now().UnixNano() / 100,
		State:        gossip.MemberInfo_Leader,
		IsAlive:      true,
		HttpEndPoint: &gossip.EndPoint{Address: m.host, Port: m.port},
	}}}, nil
}

func structuredID(id uuid.UUID) *shared.UUID {
	most, least := wire.UUIDHalves(id)
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits: int64(most), LeastSignificantBits: int64(least),
	}}}
}

var _ streams.StreamsServer = (*service)(nil)
