package node

import (
	"slices"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// encodedMessage is a message that is encoded already. Its bytes must never change.
type encodedMessage []byte

// codec sends encoded messages and returns received ones without decoding them. It leaves all other
// messages to the protobuf codec.
type codec struct {
	encoding.CodecV2
}

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal returns the bytes of a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(encodedMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal decodes a message, or takes it as it is.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*rawMessage); ok {
		r.bytes = slices.Grow(r.bytes[:0], data.Len())[:data.Len()]
		data.CopyTo(r.bytes)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
