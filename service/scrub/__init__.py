"""Scrubbing: what is stored is read in the background, so that damage is found before a plan counts on it."""
