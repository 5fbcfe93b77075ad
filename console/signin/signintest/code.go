package signintest

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"time"
)

// Code is the code that an authenticator app with a key shows at a time (RFC 6238).
func Code(key string, at time.Time) (string, error) {
	raw, err := base32.StdEncoding.DecodeString(key)
	mac := hmac.New(sha1.New, raw)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(at.Unix()/30)))
	sum := mac.Sum(nil)
	n := binary.BigEndian.Uint32(sum[sum[len(sum)-1]&15:]) & 0x7fffffff
	return fmt.Sprintf("%06d", n%1_000_000), err
}
