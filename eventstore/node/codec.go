package node

import (
	"slices"

	"google.golang.org/grpc"
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
	if m, ok := v.(*sizedMessage); ok {
		if m.tooLong = data.Len() > maxMessage; m.tooLong {
			return nil
		}
		return c.Unmarshal(data, m.message)
	}
	if r, ok := v.(*rawMessage); ok {
		r.bytes = slices.Grow(r.bytes[:0], data.Len())[:data.Len()]
		data.CopyTo(r.bytes)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// maxReceived is up to which length a message over maxMessage is received, so that its refusal has the words that
// clients know. grpc ends the call of a longer one with words of its own.
const maxReceived = 2 * maxMessage

// sizedMessage is a message that is not decoded if it is longer than maxMessage.
type sizedMessage struct {
	message any
	tooLong bool
}

// sizedStream refuses messages over maxMessage.
type sizedStream struct {
	grpc.ServerStream
	next sizedMessage
}

// checkSizes is an interceptor: it refuses messages over maxMessage.
func checkSizes(server any, call grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, &sizedStream{ServerStream: call})
}

// RecvMsg implements grpc.ServerStream.
func (s *sizedStream) RecvMsg(message any) error {
	s.next = sizedMessage{message: message}
	if err := s.ServerStream.RecvMsg(&s.next); err != nil {
		return err
	}
	if s.next.tooLong {
		return errLongMessage()
	}
	return nil
}
