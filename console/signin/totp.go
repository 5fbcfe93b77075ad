package signin

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
)

// The codes of RFC 6238 as every authenticator app makes them: SHA-1, six digits, a new one each 30 seconds. A clock
// may be a step off. SHA-1 is safe here, since HMAC does not need that nobody finds collisions.
const (
	codeStep  = 30
	codeSlack = 1
)

var base32Text = base32.StdEncoding.WithPadding(base32.NoPadding)

// codeAt returns the code of a step.
func codeAt(key []byte, step int64) string {
	mac := hmac.New(sha1.New, key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(step))) // steps are not negative
	sum := mac.Sum(nil)
	at := sum[len(sum)-1] & 0x0f
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[at:])&0x7fffffff%1_000_000)
}

// stepOf returns the step of a code around now. It is ErrCode unless it is one after the last one that was used. key is
// that of an app, as text.
func (s *Service) stepOf(key, code string, last int64) (step int64, err error) {
	raw, err := base32Text.DecodeString(key)
	if err != nil {
		return 0, err
	}
	current, err := s.now().Unix()/codeStep, ErrCode
	for n := current - codeSlack; n <= current+codeSlack; n++ {
		if subtle.ConstantTimeCompare([]byte(codeAt(raw, n)), []byte(plainCode(code))) == 1 && n > last {
			step, err = n, nil
		}
	}
	return step, err
}
