package node

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/annals-project/annals/eventstore/node/wire"
)

// serverVersion is the release of EventStoreDB whose behaviour the node reproduces. Clients accept
// numbers only.
const serverVersion = "24.10.4"

// supported are the methods of Streams that the node serves, in lower case, as clients look for
// them, with their features.
var supported = []struct {
	method   string
	features []string
}{
	{"append", nil},
	{"read", []string{"position", "events"}},
	{"delete", nil},
	{"tombstone", nil},
	{"batchappend", []string{"deadline_duration"}},
}

// asStreams returns a service of which each method reads its messages itself. grpc reads the message of any other
// method, up to its full length, before an interceptor can refuse the call.
func asStreams(service grpc.ServiceDesc) *grpc.ServiceDesc {
	service.Streams = slices.Clone(service.Streams)
	for _, method := range service.Methods {
		service.Streams = append(service.Streams, grpc.StreamDesc{
			StreamName: method.MethodName, ClientStreams: true,
			Handler: func(server any, call grpc.ServerStream) error {
				answer, err := method.Handler(server, call.Context(), func(request any) error {
					err := call.RecvMsg(request)
					if errors.Is(err, io.EOF) {
						err = errInvalid("a call must carry its request")
					}
					return err
				}, nil)
				if err != nil {
					return err
				}
				return call.SendMsg(answer)
			},
		})
	}
	service.Methods = nil
	return &service
}

// registerOpen serves the methods that need no password. Their requests are empty: none is read, so that nobody can
// make the node receive a long one.
func registerOpen(server *grpc.Server, members *membership) {
	serve := func(service, method string, answer func() any) {
		server.RegisterService(&grpc.ServiceDesc{ServiceName: service, Streams: []grpc.StreamDesc{{
			StreamName: method, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, call grpc.ServerStream) error { return call.SendMsg(answer()) },
		}}}, nil)
	}
	serve(serverfeatures.ServerFeatures_ServiceDesc.ServiceName, "GetSupportedMethods", func() any {
		return supportedMethods()
	})
	serve(gossip.Gossip_ServiceDesc.ServiceName, "Read", func() any { return members.read() })
}

// supportedMethods lists what the node serves.
func supportedMethods() *serverfeatures.SupportedMethods {
	all := &serverfeatures.SupportedMethods{EventStoreServerVersion: serverVersion}
	for _, s := range supported {
		all.Methods = append(all.Methods, &serverfeatures.SupportedMethod{
			MethodName: s.method, ServiceName: "event_store.client.streams.streams", Features: s.features,
		})
	}
	return all
}

// membership answers clients that discover a cluster: this node is the only member.
type membership struct {
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

// read lists the one member.
func (m *membership) read() *gossip.ClusterInfo {
	return &gossip.ClusterInfo{Members: []*gossip.MemberInfo{{
		InstanceId:   structuredID(m.instance),
		TimeStamp:    time.Now().UnixNano() / 100,
		State:        gossip.MemberInfo_Leader,
		IsAlive:      true,
		HttpEndPoint: &gossip.EndPoint{Address: m.host, Port: m.port},
	}}}
}

func structuredID(id uuid.UUID) *shared.UUID {
	most, least := wire.UUIDHalves(id)
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits: int64(most), LeastSignificantBits: int64(least),
	}}}
}

var _ streams.StreamsServer = (*service)(nil)
