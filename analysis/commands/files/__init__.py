"""Commands on files rather than measures: archives and pages."""
