.PHONY: demo test check bench clean
.DEFAULT_GOAL := test
