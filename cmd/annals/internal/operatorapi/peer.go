package operatorapi

import (
	"context"
	"errors"

	"github.com/annals-project/annals/internal/peersocket"
)

// by returns the name for events: that of the peer, and the name that the client sent as a remark
// if it differs.
func by(ctx context.Context, remark string) (string, error) {
	p, known := peersocket.Of(ctx)
	if !known {
		return "", errors.New("the user at the other end of the socket is not known")
	}
	name := "operator " + p.Name()
	remark = cleaned(remark, maxRemark)
	if remark == "" || remark == name {
		return name, nil
	}
	return name + " (says: " + remark + ")", nil
}

// maxRemark is the longest remark in characters.
const maxRemark = 100
