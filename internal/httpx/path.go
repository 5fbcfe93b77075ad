package httpx

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
)

// PathParam returns a path parameter, percent-decoded exactly once. It reads the path as sent,
// since the router returns some parameters decoded and some not.
func PathParam(c echo.Context, name string) (string, error) {
	template := strings.Split(c.Path(), "/")
	segments := strings.Split(c.Request().URL.EscapedPath(), "/")
	for i, t := range template {
		if t != ":"+name || i >= len(segments) {
			continue
		}
		value, err := url.PathUnescape(segments[i])
		if err != nil {
			return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s is not percent-encoded: %v", name, err)
		}
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s is not text in UTF-8 without U+0000", name)
		}
		return value, nil
	}
	return "", fault.New(fault.Internal, fault.CodeInternal, "the route has no parameter %s", name)
}

// PathRest returns the part of a path for the "*" at the end of its template, percent-decoded once.
func PathRest(c echo.Context) (string, error) {
	above := strings.Count(c.Path(), "/")
	segments := strings.SplitN(c.Request().URL.EscapedPath(), "/", above+1)
	rest, err := url.PathUnescape(segments[len(segments)-1])
	if err != nil {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "the path is not percent-encoded: %v", err)
	}
	return rest, nil
}

// PathUUID returns a path parameter that is a UUID in its usual form of 36 characters. Any other
// text names nothing: 404 not-found.
func PathUUID(c echo.Context, name string) (uuid.UUID, error) {
	value, err := PathParam(c, name)
	if err != nil || len(value) != 36 {
		return uuid.Nil, fault.New(fault.NotFound, fault.CodeNotFound, "%s is not a UUID", name)
	}
	id, err := uuid.Parse(value)
	if err != nil {
		return uuid.Nil, fault.New(fault.NotFound, fault.CodeNotFound, "%s is not a UUID", name)
	}
	return id, nil
}
