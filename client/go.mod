module github.com/annals-project/annals/client

go 1.25.0
